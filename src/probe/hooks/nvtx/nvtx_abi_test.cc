// SPDX-License-Identifier: Apache-2.0
// Compares what nvtx_types.h writes down with the real headers. Built only where there are some.
#include <gtest/gtest.h>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>
#if __has_include(<nvtx3/nvToolsExtCounters.h>)
#include <nvtx3/nvToolsExtCounters.h>
#include <nvtx3/nvToolsExtSemanticsCounters.h>
#endif

#include <cstddef>

#include "probe/hooks/nvtx/nvtx_types.h"

namespace vramscope::probe::nvtx {
namespace {

static_assert(static_cast<int>(Module::kCore) == NVTX_CB_MODULE_CORE);
static_assert(static_cast<int>(Module::kCore2) == NVTX_CB_MODULE_CORE2);
static_assert(kCallbacksTable == NVTX_ETID_CALLBACKS);
static_assert(sizeof(CallbacksTable) == sizeof(NvtxExportTableCallbacks));
static_assert(offsetof(CallbacksTable, GetModuleFunctionTable) ==
              offsetof(NvtxExportTableCallbacks, GetModuleFunctionTable));
static_assert(kNoPushPopTracking == NVTX_NO_PUSH_POP_TRACKING);

#define SAME_ID(enumeration, prefix, name) \
  static_assert(static_cast<int>(enumeration::k##name) == prefix##name)
SAME_ID(CoreId, NVTX_CBID_CORE_, MarkEx);
SAME_ID(CoreId, NVTX_CBID_CORE_, MarkA);
SAME_ID(CoreId, NVTX_CBID_CORE_, MarkW);
SAME_ID(CoreId, NVTX_CBID_CORE_, RangePushEx);
SAME_ID(CoreId, NVTX_CBID_CORE_, RangePushA);
SAME_ID(CoreId, NVTX_CBID_CORE_, RangePushW);
SAME_ID(CoreId, NVTX_CBID_CORE_, RangePop);
SAME_ID(CoreId, NVTX_CBID_CORE_, NameOsThreadA);
SAME_ID(CoreId, NVTX_CBID_CORE_, NameOsThreadW);
SAME_ID(Core2Id, NVTX_CBID_CORE2_, DomainMarkEx);
SAME_ID(Core2Id, NVTX_CBID_CORE2_, DomainRangePushEx);
SAME_ID(Core2Id, NVTX_CBID_CORE2_, DomainRangePop);
SAME_ID(Core2Id, NVTX_CBID_CORE2_, DomainRegisterStringA);
SAME_ID(Core2Id, NVTX_CBID_CORE2_, DomainRegisterStringW);
SAME_ID(Core2Id, NVTX_CBID_CORE2_, DomainCreateA);
SAME_ID(Core2Id, NVTX_CBID_CORE2_, DomainCreateW);

static_assert(static_cast<int>(MessageType::kUnknown) == NVTX_MESSAGE_UNKNOWN);
static_assert(static_cast<int>(MessageType::kAscii) == NVTX_MESSAGE_TYPE_ASCII);
static_assert(static_cast<int>(MessageType::kUnicode) == NVTX_MESSAGE_TYPE_UNICODE);
static_assert(static_cast<int>(MessageType::kRegistered) == NVTX_MESSAGE_TYPE_REGISTERED);

#define SAME_FIELD(ours, theirs)                                                              \
  static_assert(offsetof(EventAttributes, ours) == offsetof(nvtxEventAttributes_t, theirs) && \
                sizeof(EventAttributes::ours) == sizeof(nvtxEventAttributes_t::theirs))
static_assert(sizeof(EventAttributes) == sizeof(nvtxEventAttributes_t));
SAME_FIELD(version, version);
SAME_FIELD(size, size);
SAME_FIELD(category, category);
SAME_FIELD(payload_type, payloadType);
SAME_FIELD(payload_count, reserved0);
SAME_FIELD(payload, payload);
SAME_FIELD(message_type, messageType);
SAME_FIELD(message, message);

static_assert(kPayloadExtension == NVTX_EXT_PAYLOAD_MODULEID);
static_assert(static_cast<int>(PayloadId::kSchemaRegister) ==
              NVTX3EXT_CBID_nvtxPayloadSchemaRegister);
static_assert(kExtendedPayload == NVTX_PAYLOAD_TYPE_EXT);
// Older headers have other names for the same.
#ifdef NVTX_PAYLOAD_SCHEMA_ATTR_ENTRIES
static_assert(kFirstStaticSchema == NVTX_PAYLOAD_ENTRY_TYPE_SCHEMA_ID_STATIC_START);
static_assert(kSchemaNeeds ==
              (NVTX_PAYLOAD_SCHEMA_ATTR_ENTRIES | NVTX_PAYLOAD_SCHEMA_ATTR_NUM_ENTRIES |
               NVTX_PAYLOAD_SCHEMA_ATTR_SCHEMA_ID));
#else
static_assert(kFirstStaticSchema == NVTX_PAYLOAD_SCHEMA_ID_STATIC_START);
static_assert(kSchemaNeeds ==
              (NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES |
               NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_SCHEMA_ID));
#endif
static_assert(kEntryInt == NVTX_PAYLOAD_ENTRY_TYPE_INT);
static_assert(kEntryUint64 == NVTX_PAYLOAD_ENTRY_TYPE_UINT64);
static_assert(sizeof(PayloadData) == sizeof(nvtxPayloadData_t));
static_assert(offsetof(PayloadData, size) == offsetof(nvtxPayloadData_t, size));
static_assert(offsetof(PayloadData, data) == offsetof(nvtxPayloadData_t, payload));
static_assert(sizeof(SchemaEntry) == sizeof(nvtxPayloadSchemaEntry_t));
static_assert(offsetof(SchemaEntry, type) == offsetof(nvtxPayloadSchemaEntry_t, type));
static_assert(offsetof(SchemaEntry, name) == offsetof(nvtxPayloadSchemaEntry_t, name));
static_assert(offsetof(SchemaEntry, offset) == offsetof(nvtxPayloadSchemaEntry_t, offset));
static_assert(offsetof(SchemaAttributes, entries) == offsetof(nvtxPayloadSchemaAttr_t, entries));
static_assert(offsetof(SchemaAttributes, entry_count) ==
              offsetof(nvtxPayloadSchemaAttr_t, numEntries));
static_assert(offsetof(SchemaAttributes, schema_id) == offsetof(nvtxPayloadSchemaAttr_t, schemaId));
SAME_ID(PayloadId, NVTX3EXT_CBID_nvtx, MarkPayload);
SAME_ID(PayloadId, NVTX3EXT_CBID_nvtx, RangePushPayload);
SAME_ID(PayloadId, NVTX3EXT_CBID_nvtx, RangePopPayload);
static_assert(sizeof(ExtensionSegment) == sizeof(nvtxExtModuleSegment_t));
static_assert(offsetof(ExtensionSegment, slot_count) ==
              offsetof(nvtxExtModuleSegment_t, slotCount));
static_assert(offsetof(ExtensionSegment, slots) == offsetof(nvtxExtModuleSegment_t, functionSlots));
static_assert(sizeof(ExtensionModule) == sizeof(nvtxExtModuleInfo_t));
static_assert(offsetof(ExtensionModule, struct_size) == offsetof(nvtxExtModuleInfo_t, structSize));
static_assert(offsetof(ExtensionModule, module_id) == offsetof(nvtxExtModuleInfo_t, moduleId));
static_assert(offsetof(ExtensionModule, segment_count) ==
              offsetof(nvtxExtModuleInfo_t, segmentsCount));
static_assert(offsetof(ExtensionModule, segments) == offsetof(nvtxExtModuleInfo_t, segments));

#ifdef NVTX_EXT_COUNTERS_MODULEID
static_assert(kCountersExtension == NVTX_EXT_COUNTERS_MODULEID);
SAME_ID(CounterCall, NVTX3EXT_CBID_nvtxCounter, Register);
SAME_ID(CounterCall, NVTX3EXT_CBID_nvtxCounter, SampleInt64);
SAME_ID(CounterCall, NVTX3EXT_CBID_nvtxCounter, SampleFloat64);
SAME_ID(CounterCall, NVTX3EXT_CBID_nvtxCounter, SampleNoValue);
static_assert(static_cast<int>(PayloadId::kScopeRegister) == NVTX3EXT_CBID_nvtxScopeRegister);
static_assert(kNoId == NVTX_COUNTER_ID_NONE && kNoId == NVTX_SCOPE_NONE);
static_assert(kFirstDynamicId == NVTX_COUNTER_ID_DYNAMIC_START &&
              kFirstDynamicId == NVTX_SCOPE_ID_DYNAMIC_START);
static_assert(kSampleZero == NVTX_COUNTER_SAMPLE_ZERO);
static_assert(kCounterSemanticsId == NVTX_SEMANTIC_ID_COUNTERS_V1);
static_assert(kCounterSemanticsVersion == NVTX_COUNTER_SEMANTIC_VERSION);
static_assert(kNormalize == NVTX_COUNTER_FLAG_NORMALIZE);
static_assert(kDelta == NVTX_COUNTER_FLAG_VALUETYPE_DELTA);
static_assert(kDeltaSinceStart == NVTX_COUNTER_FLAG_VALUETYPE_DELTA_SINCE_START);
static_assert(kValueType == (NVTX_COUNTER_FLAG_VALUETYPE_ABSOLUTE | kDelta | kDeltaSinceStart));
static_assert(sizeof(SemanticsHeader) == sizeof(nvtxSemanticsHeader_t));
static_assert(offsetof(SemanticsHeader, id) == offsetof(nvtxSemanticsHeader_t, semanticId));
static_assert(offsetof(SemanticsHeader, version) == offsetof(nvtxSemanticsHeader_t, version));
static_assert(offsetof(SemanticsHeader, next) == offsetof(nvtxSemanticsHeader_t, next));
static_assert(sizeof(CounterSemantics) == offsetof(nvtxSemanticsCounter_t, limitType));
static_assert(offsetof(CounterSemantics, flags) == offsetof(nvtxSemanticsCounter_t, flags));
static_assert(offsetof(CounterSemantics, unit) == offsetof(nvtxSemanticsCounter_t, unit));
static_assert(offsetof(CounterSemantics, scale_numerator) ==
              offsetof(nvtxSemanticsCounter_t, unitScaleNumerator));
static_assert(offsetof(CounterSemantics, scale_denominator) ==
              offsetof(nvtxSemanticsCounter_t, unitScaleDenominator));
static_assert(sizeof(CounterAttributes) == sizeof(nvtxCounterAttr_t));
static_assert(offsetof(CounterAttributes, name) == offsetof(nvtxCounterAttr_t, name));
static_assert(offsetof(CounterAttributes, scope_id) == offsetof(nvtxCounterAttr_t, scopeId));
static_assert(offsetof(CounterAttributes, semantics) == offsetof(nvtxCounterAttr_t, semantics));
static_assert(offsetof(CounterAttributes, id) == offsetof(nvtxCounterAttr_t, counterId));
static_assert(sizeof(ScopeAttributes) == sizeof(nvtxScopeAttr_t));
static_assert(offsetof(ScopeAttributes, path) == offsetof(nvtxScopeAttr_t, path));
static_assert(offsetof(ScopeAttributes, parent) == offsetof(nvtxScopeAttr_t, parentScope));
static_assert(offsetof(ScopeAttributes, id) == offsetof(nvtxScopeAttr_t, scopeId));
#endif

TEST(NvtxAbi, ComparedByTheCompiler) {
  EXPECT_GE(NVTX_VERSION, 3);
}

}  // namespace
}  // namespace vramscope::probe::nvtx
