// SPDX-License-Identifier: Apache-2.0
#include "probe/stack/native/cfi.h"

namespace vramscope::probe {
namespace {

constexpr uint32_t kMaxRemembered = 4;  // compilers use one or two

struct Cie {
  uint64_t code_align = 0;
  int64_t data_align = 0;
  uint8_t pointer_encoding = 0;
  bool has_augmentation = false;
  bool is_signal_frame = false;
  ByteRange program;
};

struct Fde {
  Cie cie;
  uintptr_t begin = 0;
  ByteRange program;
};

// The bytes of an entry after its length; empty for the terminator and for 64-bit DWARF, which no
// linker writes here.
ByteRange EntryBody(ByteRange segment, const uint8_t* entry) {
  ByteCursor cursor({entry, segment.end});
  const auto size = cursor.Fixed<uint32_t>();
  return size != 0xffffffff ? cursor.Take(size) : ByteRange{};
}

bool ParseCie(ByteRange segment, const uint8_t* entry, Cie* cie) {
  if (!segment.Contains(entry))
    return false;
  ByteCursor cursor(EntryBody(segment, entry));
  if (cursor.Fixed<uint32_t>() != 0 || !cursor.ok())
    return false;
  const uint8_t version = cursor.U8();
  if (version != 1 && version != 3)
    return false;
  const char* augmentation = reinterpret_cast<const char*>(cursor.at());
  while (cursor.U8() != 0) {
  }
  cie->code_align = cursor.Uleb();
  cie->data_align = cursor.Sleb();
  const uint64_t return_address = version == 1 ? cursor.U8() : cursor.Uleb();
  if (!cursor.ok() || return_address != kReturnAddress)
    return false;
  if (*augmentation == 'z') {
    cie->has_augmentation = true;
    ByteCursor data(cursor.Take(cursor.Uleb()));
    // The letters describe `data`, in their order; the text's zero was seen above.
    while (*++augmentation != '\0') {
      switch (*augmentation) {
        case 'R':
          cie->pointer_encoding = data.U8();
          break;
        case 'P': {  // the routine for exceptions: passed over
          const uint8_t encoding = data.U8();
          data.Pointer(encoding & 0x0f, nullptr);
          break;
        }
        case 'L':
          data.U8();
          break;
        case 'S':
          cie->is_signal_frame = true;
          break;
        default:
          return false;
      }
    }
    if (!data.ok())
      return false;
  } else if (*augmentation != '\0') {
    return false;
  }
  cie->program = cursor.Take(cursor.left());
  return cursor.ok();
}

// The entry of the sorted table whose function begins last at or before `pc`, or nullptr.
const uint8_t* SearchTable(const CodeModule& module, uintptr_t pc) {
  const uint8_t* const header = module.eh_frame_hdr;
  const ByteRange segment = module.SegmentAround(header);
  if (!segment.Contains(header))
    return nullptr;
  ByteCursor cursor({header, segment.end});
  const uint8_t version = cursor.U8();
  const uint8_t frame_encoding = cursor.U8();
  const uint8_t count_encoding = cursor.U8();
  const uint8_t table_encoding = cursor.U8();
  if (version != 1 || table_encoding != kPointerTableOfInt32 || count_encoding == kPointerOmitted)
    return nullptr;
  if (frame_encoding != kPointerOmitted)
    cursor.Pointer(frame_encoding, header);
  const uint64_t count = cursor.Pointer(count_encoding, header);
  struct Row {
    int32_t function;
    int32_t entry;
  };
  if (!cursor.ok() || count == 0 || count > cursor.left() / sizeof(Row))
    return nullptr;
  const uint8_t* const rows = cursor.at();
  const auto row_at = [rows](uint64_t index) {
    Row row;
    std::memcpy(&row, rows + index * sizeof row, sizeof row);
    return row;
  };
  const auto wanted = static_cast<int64_t>(pc - reinterpret_cast<uintptr_t>(header));
  uint64_t low = 0, high = count;
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    if (row_at(middle).function <= wanted)
      low = middle;
    else
      high = middle;
  }
  const Row found = row_at(low);
  if (found.function > wanted)
    return nullptr;
  const auto entry =
      reinterpret_cast<uintptr_t>(header) + static_cast<uintptr_t>(int64_t{found.entry});
  return reinterpret_cast<const uint8_t*>(entry);
}

bool FindFde(const CodeModule& module, uintptr_t pc, Fde* fde) {
  const uint8_t* const entry = SearchTable(module, pc);
  if (entry == nullptr)
    return false;
  const ByteRange segment = module.SegmentAround(entry);
  if (!segment.Contains(entry))
    return false;
  ByteCursor cursor(EntryBody(segment, entry));
  const auto link_at = reinterpret_cast<uintptr_t>(cursor.at());
  const auto link = cursor.Fixed<uint32_t>();
  if (!cursor.ok() || link == 0 ||
      !ParseCie(segment, reinterpret_cast<const uint8_t*>(link_at - link), &fde->cie)) {
    return false;
  }
  const Cie& cie = fde->cie;
  fde->begin = cursor.Pointer(cie.pointer_encoding, module.eh_frame_hdr);
  const uint64_t size = cursor.Pointer(cie.pointer_encoding & 0x0f, nullptr);
  if (cie.has_augmentation)
    cursor.Take(cursor.Uleb());
  fde->program = cursor.Take(cursor.left());
  return cursor.ok() && pc - fde->begin < size;
}

// Runs the programs of an entry up to one address.
class CfiProgram {
 public:
  CfiProgram(const Fde& fde, uintptr_t pc, CfiRules* rules)
      : fde_(fde), pc_(pc), at_(fde.begin), rules_(rules) {}

  bool Run() {
    if (!Execute(fde_.cie.program))
      return false;
    initial_ = *rules_;
    has_initial_ = true;
    at_ = fde_.begin;
    return Execute(fde_.program) && rules_->cfa.kind != CfiRule::kSame;
  }

 private:
  bool Execute(ByteRange program) {
    ByteCursor cursor(program);
    while (!cursor.AtEnd() && at_ <= pc_) {
      if (!Step(&cursor) || !cursor.ok())
        return false;
    }
    return true;
  }

  bool Step(ByteCursor* cursor) {
    const uint8_t opcode = cursor->U8();
    const uint32_t low = opcode & 0x3f;
    switch (opcode & 0xc0) {
      case 0x40:  // DW_CFA_advance_loc
        return Advance(low);
      case 0x80:  // DW_CFA_offset
        return Set(low, {CfiRule::kOffset, 0, Factored(cursor->Uleb())});
      case 0xc0:  // DW_CFA_restore
        return Restore(low);
      default:
        return Extended(opcode, cursor);
    }
  }

  bool Extended(uint8_t opcode, ByteCursor* cursor) {
    switch (opcode) {
      case 0x00:  // DW_CFA_nop
        return true;
      case 0x01:  // DW_CFA_set_loc
        at_ = cursor->Pointer(fde_.cie.pointer_encoding, nullptr);
        return true;
      case 0x02:  // DW_CFA_advance_loc1
        return Advance(cursor->U8());
      case 0x03:  // DW_CFA_advance_loc2
        return Advance(cursor->Fixed<uint16_t>());
      case 0x04:  // DW_CFA_advance_loc4
        return Advance(cursor->Fixed<uint32_t>());
      case 0x0a:  // DW_CFA_remember_state
        if (remembered_count_ == kMaxRemembered)
          return false;
        remembered_[remembered_count_++] = *rules_;
        return true;
      case 0x0b:  // DW_CFA_restore_state
        if (remembered_count_ == 0)
          return false;
        *rules_ = remembered_[--remembered_count_];
        return true;
      case 0x2e:  // DW_CFA_GNU_args_size: bytes of arguments, for exceptions only
        cursor->Uleb();
        return true;
      default:
        return opcode >= 0x0c && opcode <= 0x13 && opcode != 0x10 && opcode != 0x11
                   ? DefineCfa(opcode, cursor)
                   : DefineRegister(opcode, cursor);
    }
  }

  bool DefineCfa(uint8_t opcode, ByteCursor* cursor) {
    CfiRule& cfa = rules_->cfa;
    switch (opcode) {
      case 0x0c:  // DW_CFA_def_cfa
        return SetCfaRegister(cursor->Uleb()) && SetCfaOffset(static_cast<int64_t>(cursor->Uleb()));
      case 0x0d:  // DW_CFA_def_cfa_register
        return cfa.kind == CfiRule::kOffset && SetCfaRegister(cursor->Uleb());
      case 0x0e:  // DW_CFA_def_cfa_offset
        return cfa.kind == CfiRule::kOffset && SetCfaOffset(static_cast<int64_t>(cursor->Uleb()));
      case 0x0f:  // DW_CFA_def_cfa_expression
        cfa = Expression(CfiRule::kExpression, cursor);
        return true;
      case 0x12:  // DW_CFA_def_cfa_sf
        return SetCfaRegister(cursor->Uleb()) &&
               SetCfaOffset(Factored(static_cast<uint64_t>(cursor->Sleb())));
      default:  // 0x13, DW_CFA_def_cfa_offset_sf
        return cfa.kind == CfiRule::kOffset &&
               SetCfaOffset(Factored(static_cast<uint64_t>(cursor->Sleb())));
    }
  }

  bool DefineRegister(uint8_t opcode, ByteCursor* cursor) {
    const uint64_t number = cursor->Uleb();
    switch (opcode) {
      case 0x05:  // DW_CFA_offset_extended
        return Set(number, {CfiRule::kOffset, 0, Factored(cursor->Uleb())});
      case 0x06:  // DW_CFA_restore_extended
        return Restore(number);
      case 0x07:  // DW_CFA_undefined
        return Set(number, {CfiRule::kUndefined, 0, 0});
      case 0x08:  // DW_CFA_same_value
        return Set(number, {CfiRule::kSame, 0, 0});
      case 0x09:  // DW_CFA_register
        return Set(number, {CfiRule::kRegister, 0, static_cast<int64_t>(cursor->Uleb())});
      case 0x10:  // DW_CFA_expression
        return Set(number, Expression(CfiRule::kExpression, cursor));
      case 0x11:  // DW_CFA_offset_extended_sf
        return Set(number, {CfiRule::kOffset, 0, Factored(static_cast<uint64_t>(cursor->Sleb()))});
      case 0x14:  // DW_CFA_val_offset
        return Set(number, {CfiRule::kValueOffset, 0, Factored(cursor->Uleb())});
      case 0x15:  // DW_CFA_val_offset_sf
        return Set(number,
                   {CfiRule::kValueOffset, 0, Factored(static_cast<uint64_t>(cursor->Sleb()))});
      case 0x16:  // DW_CFA_val_expression
        return Set(number, Expression(CfiRule::kValueExpression, cursor));
      default:
        return false;
    }
  }

  static CfiRule Expression(CfiRule::Kind kind, ByteCursor* cursor) {
    const ByteRange bytes = cursor->Take(cursor->Uleb());
    return {kind, static_cast<uint32_t>(bytes.end - bytes.begin),
            static_cast<int64_t>(reinterpret_cast<uintptr_t>(bytes.begin))};
  }

  bool Advance(uint64_t delta) {
    // Far beyond any function, so that the sum cannot come round.
    at_ += delta * (fde_.cie.code_align & 0xffff);
    return true;
  }

  int64_t Factored(uint64_t value) const {
    return static_cast<int64_t>(value * static_cast<uint64_t>(fde_.cie.data_align));
  }

  bool SetCfaRegister(uint64_t number) {
    if (number >= kReturnAddress)
      return false;
    rules_->cfa_register = static_cast<uint32_t>(number);
    return true;
  }

  bool SetCfaOffset(int64_t offset) {
    rules_->cfa = {CfiRule::kOffset, 0, offset};
    return true;
  }

  // Vector registers and the like are of no use to a walk.
  bool Set(uint64_t number, const CfiRule& rule) {
    if (number < kRegisterCount)
      rules_->registers[number] = rule;
    return true;
  }

  bool Restore(uint64_t number) {
    return has_initial_ && (number >= kRegisterCount || Set(number, initial_.registers[number]));
  }

  const Fde& fde_;
  const uintptr_t pc_;
  uintptr_t at_;
  CfiRules* const rules_;
  CfiRules initial_;
  bool has_initial_ = false;
  uint32_t remembered_count_ = 0;
  CfiRules remembered_[kMaxRemembered];
};

}  // namespace

ByteRange CodeModule::SegmentAround(const uint8_t* at) const {
  for (uint32_t i = 0; i < header_count; ++i) {
    const auto& header = headers[i];
    if (header.p_type != PT_LOAD || (header.p_flags & PF_R) == 0)
      continue;
    const auto* const begin = reinterpret_cast<const uint8_t*>(bias + header.p_vaddr);
    // No more than the file has: what is beyond it can be a page that was never mapped.
    const ByteRange segment{begin, begin + header.p_filesz};
    if (segment.Contains(at))
      return segment;
  }
  return {};
}

bool FindRules(const CodeModule& module, uintptr_t pc, CfiRules* rules) {
  Fde fde;
  if (module.eh_frame_hdr == nullptr || !FindFde(module, pc, &fde))
    return false;
  *rules = {};
  rules->is_signal_frame = fde.cie.is_signal_frame;
  CfiProgram program(fde, pc, rules);
  return program.Run();
}

}  // namespace vramscope::probe
