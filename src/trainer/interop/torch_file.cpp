#include "interop/torch_file.h"

#include <zlib.h>

#include "core/pickle_codes.h"

namespace crest {

using namespace pickle;

namespace {

// PyTorch maps tensors from files: they begin at multiples of this.
constexpr uint64_t alignment = 64;
constexpr uint16_t zip64_version = 45;

}  // namespace

TorchPickle::TorchPickle() {
  out_ += char(PROTO);
  out_ += char(2);
}

void TorchPickle::begin_dict() {
  out_ += char(EMPTY_DICT);
  out_ += char(MARK);
}
void TorchPickle::end_dict() { out_ += char(SETITEMS); }
void TorchPickle::begin_list() {
  out_ += char(EMPTY_LIST);
  out_ += char(MARK);
}
void TorchPickle::end_list() { out_ += char(APPENDS); }
void TorchPickle::begin_tuple() { out_ += char(MARK); }
void TorchPickle::end_tuple() { out_ += char(TUPLE); }

void TorchPickle::text(std::string_view value) {
  out_ += char(BINUNICODE);
  put(out_, value.size(), 4);
  out_ += value;
}

void TorchPickle::integer(int64_t value) { put_integer(out_, value); }
void TorchPickle::number(double value) { put_number(out_, value); }
void TorchPickle::boolean(bool value) { out_ += char(value ? NEWTRUE : NEWFALSE); }
void TorchPickle::none() { out_ += char(NONE); }

void TorchPickle::global(std::string_view name) {
  out_ += char(GLOBAL);
  out_ += name;
}

// torch._utils._rebuild_tensor_v2(storage, offset, shape, strides, requires_grad, hooks)
void TorchPickle::tensor(int64_t number, const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  std::vector<int64_t> strides(shape.size());
  for (size_t i = shape.size(); i-- > 0;) strides[i] = elements, elements *= shape[i];
  auto tuple = [&](const std::vector<int64_t>& values) {
    begin_tuple();
    for (int64_t v : values) integer(v);
    end_tuple();
  };
  global("torch._utils\n_rebuild_tensor_v2\n");
  begin_tuple();
  begin_tuple();
  text("storage");
  global("torch\nFloatStorage\n");
  text(std::to_string(number));
  text("cpu");
  integer(elements);
  end_tuple();
  out_ += char(BINPERSID);
  integer(0);
  tuple(shape);
  tuple(strides);
  boolean(false);
  global("collections\nOrderedDict\n");
  out_ += char(EMPTY_TUPLE);
  out_ += char(REDUCE);
  end_tuple();
  out_ += char(REDUCE);
}

std::string TorchPickle::finish() {
  out_ += char(STOP);
  return std::move(out_);
}

TorchFile::TorchFile(const std::string& path, std::string name) : file_(File::create(path)), name_(std::move(name)) {}

void TorchFile::write(std::string_view bytes) {
  file_.write(bytes);
  at_ += bytes.size();
}

// Local header: fixed part, name, sizes of 64 bits, and the extra field "FB" as padding to the
// alignment, as in PyTorch.
void TorchFile::add(const std::string& entry, std::string_view bytes) {
  Entry e{name_ + "/" + entry, at_, bytes.size(), 0};
  e.crc = uint32_t(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  constexpr uint64_t fixed = 30, sizes = 20, pad_header = 4;
  uint64_t start = at_ + fixed + e.name.size() + sizes + pad_header;
  uint64_t padding = (alignment - start % alignment) % alignment;
  std::string header = "PK\x03\x04";
  put(header, zip64_version, 2);
  put(header, 0, 2 + 2 + 2);  // flags, stored, time
  put(header, 0x21, 2);       // the first day of the format: equal content gives equal files
  put(header, e.crc, 4);
  put(header, 0xffffffff, 4), put(header, 0xffffffff, 4);  // sizes are in the extra field
  put(header, e.name.size(), 2);
  put(header, sizes + pad_header + padding, 2);
  header += e.name;
  put(header, 1, 2), put(header, 16, 2), put(header, e.bytes, 8), put(header, e.bytes, 8);
  header += "FB";
  put(header, padding, 2);
  header.append(padding, 'Z');
  write(header);
  write(bytes);
  entries_.push_back(std::move(e));
}

void TorchFile::finish() {
  uint64_t start = at_;
  for (auto& e : entries_) {
    std::string header = "PK\x01\x02";
    put(header, zip64_version, 2), put(header, zip64_version, 2);
    put(header, 0, 2 + 2 + 2);
    put(header, 0x21, 2);
    put(header, e.crc, 4);
    put(header, 0xffffffff, 4), put(header, 0xffffffff, 4);
    put(header, e.name.size(), 2);
    put(header, 28, 2);                  // extra field
    header.append(2 + 2 + 2 + 4, '\0');  // comment, disk, attributes
    put(header, 0xffffffff, 4);          // offset: in the extra field
    header += e.name;
    put(header, 1, 2), put(header, 24, 2), put(header, e.bytes, 8), put(header, e.bytes, 8), put(header, e.offset, 8);
    write(header);
  }
  uint64_t end = at_, count = entries_.size();
  std::string tail = "PK\x06\x06";
  put(tail, 44, 8);
  put(tail, zip64_version, 2), put(tail, zip64_version, 2);
  put(tail, 0, 4 + 4);
  put(tail, count, 8), put(tail, count, 8);
  put(tail, end - start, 8), put(tail, start, 8);
  tail += "PK\x06\x07";
  put(tail, 0, 4), put(tail, end, 8), put(tail, 1, 4);
  tail += "PK\x05\x06";
  put(tail, 0, 2 + 2), put(tail, 0xffff, 2), put(tail, 0xffff, 2);
  put(tail, 0xffffffff, 4), put(tail, 0xffffffff, 4);
  put(tail, 0, 2);
  write(tail);
  file_.sync();
  file_.close();
}

}  // namespace crest
