// llm.c's own loader, checkpoint reader and forward pass, from the clone that -I names. Writes to standard output:
//   tokens PATTERN B T STEPS      the loader's inputs of STEPS batches, then the last batch's last target (int32)
//   logits CHECKPOINT TOKENS N    mean loss, then logits[N][padded vocabulary] of N + 1 tokens (int32 in TOKENS) (float32)
//   vocabulary FILE               each token of a tokenizer up to its first zero byte, then its end-of-text id, a line each
// What llm.c itself prints goes to standard error.
#define TESTING
#include "train_gpt2.c"

static int write_all(FILE* out, const void* data, size_t size, size_t count) {
  return fwrite(data, size, count, out) != count;
}

static int tokens(FILE* out, char** argv) {
  size_t B = strtoul(argv[3], NULL, 10), T = strtoul(argv[4], NULL, 10), steps = strtoul(argv[5], NULL, 10);
  DataLoader loader;
  dataloader_init(&loader, argv[2], B, T, 0, 1, 0);
  int failed = 0;
  for (size_t i = 0; i < steps; ++i) {
    dataloader_next_batch(&loader);
    failed |= write_all(out, loader.inputs, sizeof(int), B * T);
  }
  failed |= write_all(out, loader.targets + B * T - 1, sizeof(int), 1);
  dataloader_free(&loader);
  return failed;
}

static int logits(FILE* out, char** argv) {
  size_t n = strtoul(argv[4], NULL, 10);
  int* text = malloc((n + 1) * sizeof(int));
  FILE* file = fopen(argv[3], "rb");
  if (!text || !file || fread(text, sizeof(int), n + 1, file) != n + 1) return 1;
  fclose(file);
  GPT2 model;
  gpt2_build_from_checkpoint(&model, argv[2]);
  gpt2_forward(&model, text, text + 1, 1, n);
  return write_all(out, &model.mean_loss, sizeof(float), 1) |
         write_all(out, model.acts.logits, sizeof(float), n * (size_t)model.config.padded_vocab_size);
}

static int vocabulary(FILE* out, char** argv) {
  Tokenizer tokenizer;
  tokenizer_init(&tokenizer, argv[2]);
  for (uint32_t i = 0; i < tokenizer.vocab_size; ++i) fprintf(out, "%s\n", tokenizer_decode(&tokenizer, i));
  return fprintf(out, "%d\n", tokenizer.eot_token) < 0;
}

int main(int argc, char** argv) {
  FILE* out = fdopen(dup(1), "wb");
  dup2(2, 1);
  int failed = 1;
  if (argc == 6 && strcmp(argv[1], "tokens") == 0) failed = tokens(out, argv);
  if (argc == 5 && strcmp(argv[1], "logits") == 0) failed = logits(out, argv);
  if (argc == 3 && strcmp(argv[1], "vocabulary") == 0) failed = vocabulary(out, argv);
  return fclose(out) != 0 || failed;
}
