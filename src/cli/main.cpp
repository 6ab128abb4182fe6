#include <cstdio>
int main() {
  std::puts("crest");
  return 0;
}
