/* Copyright: the baremetal.dgx authors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A simulated libnvidia-ml.so.1: eight H100 of a DGX, and whatever the state file says besides.
 *
 * Function names, structures, numbers and return codes are those of NVIDIA's public header nvml.h.
 * Keys of the state are the names in quotes below; docs/gpu.md lists those that make a fault.
 * With -DOLD it is a library of the time of R450, which lacks what came later.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "state.h"

#define SLOTS 8
/* What an H100 shows while it computes, a little different on each. */
#define BUSY_MW 676000
#define BUSY_C 57
#define BUSY_MHZ 1755
#define LINKS 18
#define DRIVER "580.105.08"

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, CORRUPTED_INFOROM = 14, GPU_IS_LOST = 15,
    ARGUMENT_VERSION_MISMATCH = 25,
};

typedef unsigned long long u64;
typedef unsigned int u32;
typedef struct device { int slot; } *device;

static struct device devices[SLOTS] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
static int ready;

/* Of a DGX H100 (profile dgx_h100). */
static const char *const ADDRESSES[SLOTS] = {"1b:00.0", "43:00.0", "52:00.0", "61:00.0",
                                             "9d:00.0", "c3:00.0", "d1:00.0", "df:00.0"};
static const char *const SWITCHES[4] = {"05:00.0", "06:00.0", "07:00.0", "08:00.0"};

static int slot_of(device handle) {
    return handle >= devices && handle < devices + SLOTS ? handle->slot : -1;
}

/* What every function asks first; a forced return code wins, then a lost GPU. */
static int entered(device handle, const char *function) {
    int slot = slot_of(handle);
    if (!ready) return UNINITIALIZED;
    if (slot < 0) return INVALID_ARGUMENT;
    /* A library that does not come back is its own fault. */
    if (!strcmp(state_text(slot, "hang", ""), function))
        for (;;) pause();
    if (!strcmp(state_text(slot, "crash", ""), function)) raise(SIGKILL);
    int lost = state_int(slot, "lost", 0) ? GPU_IS_LOST : SUCCESS;
    return state_return(slot, function, lost);
}

#define ENTER \
    int slot = slot_of(handle), entry = entered(handle, __func__); \
    if (entry) return entry; \
    (void)slot

#define NUMBER(function, key, fallback) \
    EXPORT int function(device handle, u32 *value) { \
        ENTER; \
        *value = (u32)state_int(slot, key, fallback); \
        return SUCCESS; \
    }

#define LONG(function, key, fallback) \
    EXPORT int function(device handle, u64 *value) { \
        ENTER; \
        *value = (u64)state_int(slot, key, fallback); \
        return SUCCESS; \
    }

#define TEXT(function, key, ...) \
    EXPORT int function(device handle, char *text, u32 length) { \
        ENTER; \
        char made[96]; \
        snprintf(made, sizeof made, __VA_ARGS__); \
        return give(text, length, state_text(slot, key, made)); \
    }

/* Two values of one kind in one call: what is, and what comes with the next reset. */
#define PAIR(function, first, first_fallback, second, second_fallback) \
    EXPORT int function(device handle, u32 *one, u32 *two) { \
        ENTER; \
        *one = (u32)state_int(slot, first, first_fallback); \
        *two = (u32)state_int(slot, second, second_fallback); \
        return SUCCESS; \
    }

static int give(char *text, u32 length, const char *value) {
    if (!text) return INVALID_ARGUMENT;
    if (strlen(value) >= length) return INSUFFICIENT_SIZE;
    strcpy(text, value);
    return SUCCESS;
}

/* What the driver could not initialize (`uninitialized`) is on PCI, and NVML does not know it. */
static int present(int slot) {
    return slot < state_int(NODE, "slots", SLOTS) && !state_int(slot, "absent", 0) && !state_int(slot, "uninitialized", 0);
}

static const char *address(int slot) { return state_text(slot, "pci", ADDRESSES[slot]); }

/* Library and system */

EXPORT int nvmlInitWithFlags(u32 flags) {
    (void)flags;
    if (!strcmp(state_text(NODE, "hang", ""), "nvmlInit"))
        for (;;) pause();
    int code = state_return(NODE, "nvmlInit", state_int(NODE, "driver_loaded", 1) ? SUCCESS : DRIVER_NOT_LOADED);
    if (!code) ready++;
    return code;
}

EXPORT int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

EXPORT int nvmlShutdown(void) {
    if (!ready) return UNINITIALIZED;
    ready--;
    return SUCCESS;
}

EXPORT const char *nvmlErrorString(int code) {
    switch (code) {
    case SUCCESS: return "The operation was successful";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case TIMEOUT: return "Timeout";
    case GPU_IS_LOST: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    case ARGUMENT_VERSION_MISMATCH: return "Argument version mismatch";
    default: return "Unknown Error";
    }
}

EXPORT int nvmlSystemGetDriverVersion(char *text, u32 length) {
    if (!ready) return UNINITIALIZED;
    return give(text, length, state_text(NODE, "driver_version", DRIVER));
}

EXPORT int nvmlSystemGetNVMLVersion(char *text, u32 length) {
    char made[96];
    snprintf(made, sizeof made, "13.%s", state_text(NODE, "driver_version", DRIVER));
    return give(text, length, state_text(NODE, "nvml_version", made));
}

EXPORT int nvmlSystemGetCudaDriverVersion(int *version) {
    *version = (int)state_int(NODE, "cuda_version", 13000);
    return SUCCESS;
}

EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

/* Which devices there are */

EXPORT int nvmlDeviceGetCount_v2(u32 *count) {
    if (!ready) return UNINITIALIZED;
    *count = 0;
    for (int slot = 0; slot < SLOTS; slot++) *count += present(slot);
    return state_return(NODE, "nvmlDeviceGetCount_v2", SUCCESS);
}

static int hand_out(int slot, device *handle, const char *function) {
    *handle = &devices[slot];
    return entered(*handle, function);
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(u32 index, device *handle) {
    if (!ready) return UNINITIALIZED;
    for (int slot = 0; slot < SLOTS; slot++)
        if (present(slot) && index-- == 0) return hand_out(slot, handle, __func__);
    return INVALID_ARGUMENT;
}

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, device *handle) {
    if (!ready) return UNINITIALIZED;
    for (int slot = 0; slot < SLOTS; slot++) {
        size_t skip = strlen(bus) > strlen(address(slot)) ? strlen(bus) - strlen(address(slot)) : 0;
        if (present(slot) && !strcasecmp(bus + skip, address(slot))) return hand_out(slot, handle, __func__);
    }
    return NOT_FOUND;
}

EXPORT int nvmlDeviceGetUUID(device handle, char *text, u32 length);

EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, device *handle) {
    char own[96];
    if (!ready) return UNINITIALIZED;
    for (int slot = 0; slot < SLOTS; slot++)
        if (present(slot) && !nvmlDeviceGetUUID(&devices[slot], own, sizeof own) && !strcmp(own, uuid))
            return hand_out(slot, handle, __func__);
    return NOT_FOUND;
}

EXPORT int nvmlDeviceGetIndex(device handle, u32 *index) {
    ENTER;
    *index = 0;
    for (int before = 0; before < slot; before++) *index += present(before);
    return SUCCESS;
}

TEXT(nvmlDeviceGetName, "name", "%s", "NVIDIA H100 80GB HBM3")
/* Each node has its own GPUs: `node_id` of the state is in their names. */
#define FIRST_NODE 0x51a7ed00
static u32 node_id(void) { return (u32)state_int(NODE, "node_id", FIRST_NODE); }

TEXT(nvmlDeviceGetUUID, "uuid", "GPU-%08x-0000-4000-8000-%012x", node_id(), slot + 1)
TEXT(nvmlDeviceGetSerial, "serial", "1650%08u%d", (node_id() - FIRST_NODE) % 100000000, slot + 1)
TEXT(nvmlDeviceGetBoardPartNumber, "part_number", "%s", "692-2G520-0200-000")
TEXT(nvmlDeviceGetVbiosVersion, "vbios", "%s", "96.00.99.00.01")
TEXT(nvmlDeviceGetInforomImageVersion, "inforom", "%s", "G520.0200.00.05")
NUMBER(nvmlDeviceGetMinorNumber, "minor", slot)

struct pci {
    char legacy[16];
    u32 domain, bus, device, id, subsystem;
    char bus_id[32];
};

static void fill_pci(struct pci *info, const char *where, u32 id) {
    memset(info, 0, sizeof *info);
    sscanf(where, "%x:%x", &info->bus, &info->device);
    info->id = id;
    info->subsystem = 0x16C110DE;
    snprintf(info->legacy, sizeof info->legacy, "0000:%.10s", where);
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%.20s", where);
    for (char *c = info->bus_id; *c; c++)
        if (*c >= 'a' && *c <= 'f') *c -= 32;
}

EXPORT int nvmlDeviceGetPciInfo_v3(device handle, struct pci *info) {
    ENTER;
    fill_pci(info, address(slot), (u32)state_int(slot, "pci_id", 0x233010DE));
    return SUCCESS;
}

/* Memory and its errors */

#define MIB (1024ULL * 1024ULL)

static u64 mib(int slot, const char *key, long long fallback) { return (u64)state_int(slot, key, fallback) * MIB; }

EXPORT int nvmlDeviceGetMemoryInfo(device handle, u64 memory[3]) {
    ENTER;
    u64 reserved = mib(slot, "memory_reserved_mib", 480);
    memory[0] = mib(slot, "memory_total_mib", 81559);
    memory[2] = mib(slot, "memory_used_mib", 0) + reserved;
    memory[1] = memory[0] - memory[2];
    return SUCCESS;
}

struct memory2 { u32 version; u64 total, reserved, free, used; };

#ifndef OLD
EXPORT int nvmlDeviceGetMemoryInfo_v2(device handle, struct memory2 *memory) {
    ENTER;
    if (memory->version != (sizeof *memory | 2 << 24)) return ARGUMENT_VERSION_MISMATCH;
    memory->total = mib(slot, "memory_total_mib", 81559);
    memory->reserved = mib(slot, "memory_reserved_mib", 480);
    memory->used = mib(slot, "memory_used_mib", 0);
    memory->free = memory->total - memory->reserved - memory->used;
    return SUCCESS;
}
#endif

PAIR(nvmlDeviceGetEccMode, "ecc_mode", 1, "ecc_mode_pending", state_int(slot, "ecc_mode", 1))

/* Keys: ecc.volatile.dram.uncorrectable and so on; 2 is device memory, 7 is SRAM. */
static u64 ecc(int slot, u32 uncorrected, u32 aggregate, const char *where) {
    char key[96];
    snprintf(key, sizeof key, "ecc.%s.%s.%s", aggregate ? "aggregate" : "volatile", where,
             uncorrected ? "uncorrectable" : "correctable");
    return (u64)state_int(slot, key, 0);
}

EXPORT int nvmlDeviceGetTotalEccErrors(device handle, u32 uncorrected, u32 aggregate, u64 *count) {
    ENTER;
    *count = ecc(slot, uncorrected, aggregate, "dram") + ecc(slot, uncorrected, aggregate, "sram");
    return SUCCESS;
}

EXPORT int nvmlDeviceGetMemoryErrorCounter(device handle, u32 uncorrected, u32 aggregate, u32 where, u64 *count) {
    ENTER;
    if (where != 2 && where != 7) return NOT_SUPPORTED;
    *count = ecc(slot, uncorrected, aggregate, where == 2 ? "dram" : "sram");
    return SUCCESS;
}

struct sram {
    u32 version;
    u64 aggregate_parity, aggregate_secded, aggregate_corrected, volatile_parity, volatile_secded, volatile_corrected;
    u64 l2, sm, pcie, mcu, other;
    u32 exceeded;
};

#ifndef OLD
EXPORT int nvmlDeviceGetSramEccErrorStatus(device handle, struct sram *status) {
    ENTER;
    if (status->version != (sizeof *status | 1 << 24)) return ARGUMENT_VERSION_MISMATCH;
    status->aggregate_parity = 0;
    status->aggregate_secded = ecc(slot, 1, 1, "sram");
    status->aggregate_corrected = ecc(slot, 0, 1, "sram");
    status->volatile_parity = 0;
    status->volatile_secded = ecc(slot, 1, 0, "sram");
    status->volatile_corrected = ecc(slot, 0, 0, "sram");
    status->l2 = status->pcie = status->mcu = status->other = 0;
    status->sm = status->aggregate_secded;
    status->exceeded = (u32)state_int(slot, "sram_threshold_exceeded", 0);
    return SUCCESS;
}
#endif

EXPORT int nvmlDeviceGetRemappedRows(device handle, u32 *correctable, u32 *uncorrectable, u32 *pending, u32 *failed) {
    ENTER;
    if (!state_int(slot, "remapping", 1) || state_int(slot, "mig", 0)) return NOT_SUPPORTED;
    *correctable = (u32)state_int(slot, "remap.correctable", 0);
    *uncorrectable = (u32)state_int(slot, "remap.uncorrectable", 0);
    *pending = (u32)state_int(slot, "remap.pending", 0);
    *failed = (u32)state_int(slot, "remap.failure", 0);
    return SUCCESS;
}

EXPORT int nvmlDeviceGetRowRemapperHistogram(device handle, u32 banks[5]) {
    ENTER;
    if (!state_int(slot, "remapping", 1)) return NOT_SUPPORTED;
    u32 full = (u32)state_int(slot, "remap.full_banks", 0);
    u32 used = state_int(slot, "remap.uncorrectable", 0) ? 1 : 0;
    banks[0] = 2560 - used - full;
    banks[1] = banks[3] = 0;
    banks[2] = used;
    banks[4] = full;
    return SUCCESS;
}

/* Parts older than Ampere retire pages; the two causes are 0 (single bit) and 1 (double bit). */
EXPORT int nvmlDeviceGetRetiredPages(device handle, u32 cause, u32 *count, u64 *addresses) {
    ENTER;
    (void)addresses;
    if (state_int(slot, "remapping", 1)) return NOT_SUPPORTED;
    u32 room = *count;
    *count = (u32)state_int(slot, cause ? "retired.double" : "retired.single", 0);
    return *count > room ? INSUFFICIENT_SIZE : SUCCESS;
}

EXPORT int nvmlDeviceGetRetiredPagesPendingStatus(device handle, u32 *pending) {
    ENTER;
    if (state_int(slot, "remapping", 1)) return NOT_SUPPORTED;
    *pending = (u32)state_int(slot, "retired.pending", 0);
    return SUCCESS;
}

/* NVLink: keys link.N.state and so on, then link.state for all links of the GPU. */

static u64 of_link(int slot, u32 number, const char *what, long long fallback) {
    char key[64];
    snprintf(key, sizeof key, "link.%s", what);
    fallback = state_int(slot, key, fallback);
    snprintf(key, sizeof key, "link.%u.%s", number, what);
    return (u64)state_int(slot, key, fallback);
}

static u32 links(int slot) { return (u32)state_int(slot, "links", LINKS); }

/* "Nvlink queries are not supported for Devices in MIG mode" (nvidia-smi 590). */
#define LINK_ENTER \
    ENTER; \
    if (state_int(slot, "mig", 0)) return NOT_SUPPORTED; \
    if (number >= links(slot)) return links(slot) ? INVALID_ARGUMENT : NOT_SUPPORTED

EXPORT int nvmlDeviceGetNvLinkState(device handle, u32 number, u32 *active) {
    LINK_ENTER;
    *active = (u32)of_link(slot, number, "state", 1);
    return SUCCESS;
}

EXPORT int nvmlDeviceGetNvLinkVersion(device handle, u32 number, u32 *version) {
    LINK_ENTER;
    *version = (u32)of_link(slot, number, "version", 7);
    return SUCCESS;
}

EXPORT int nvmlDeviceGetNvLinkErrorCounter(device handle, u32 number, u32 which, u64 *count) {
    static const char *const names[] = {"replay", "recovery", "crc"};
    LINK_ENTER;
    if (which > 2) return NOT_SUPPORTED;
    *count = of_link(slot, number, names[which], 0);
    return SUCCESS;
}

EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(device handle, u32 number, u32 *type) {
    LINK_ENTER;
    *type = 2; /* an NVSwitch */
    return SUCCESS;
}

EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(device handle, u32 number, struct pci *info) {
    LINK_ENTER;
    fill_pci(info, SWITCHES[number % 4], 0x22A310DE);
    return SUCCESS;
}

struct field {
    u32 id, scope;
    long long timestamp, latency;
    u32 type;
    int code;
    union { double real; u32 number; u64 count; long long sign; int integer; } value;
};

enum { U32 = 1, U64 = 3, INT = 5 };

/* Fields of the device, then fields of a link, which is the scope. */
static const struct { u32 id, type; const char *key; long long fallback; } FIELDS[] = {
    {82, U32, "memory_temperature", 37}, {91, U32, "links", LINKS}, {90, U32, "link.speed_mbps", 26562},
    {94, U32, "pcie_replays", 0}, {142, U32, "remap.correctable", 0}, {143, U32, "remap.uncorrectable", 0},
    {144, U32, "remap.pending", 0}, {145, U32, "remap.failure", 0}, {193, INT, "tlimit.shutdown", -8},
    {194, INT, "tlimit.slowdown", -2}, {195, INT, "tlimit.memory", 0}, {196, INT, "tlimit.gpu", 0},
    {230, U32, "recovery_action", 0},
};
static const struct { u32 id, type; const char *key; long long fallback; } LINK_FIELDS[] = {
    {164, U32, "speed_mbps", 26562}, {165, U32, "state", 1}, {161, U64, "replay", 0},
    {162, U64, "recovery", 0}, {163, U64, "crc", 0}, {214, U64, "recovery_failed", 0},
    {220, U64, "ber", 0xfff},
};
#define COUNT(list) (sizeof list / sizeof *list)

static int field(int slot, struct field *field) {
    for (size_t i = 0; i < COUNT(FIELDS); i++)
        if (FIELDS[i].id == field->id) {
#ifdef OLD
            if (field->id > 145) return NOT_SUPPORTED;
#endif
            if (state_int(slot, "mig", 0) && field->id >= 142 && field->id <= 145) return NOT_SUPPORTED;
            field->type = FIELDS[i].type;
            field->value.sign = state_int(slot, FIELDS[i].key, FIELDS[i].fallback);
            return SUCCESS;
        }
    for (size_t i = 0; i < COUNT(LINK_FIELDS); i++)
        if (LINK_FIELDS[i].id == field->id) {
            if (state_int(slot, "mig", 0)) return NOT_SUPPORTED;
            if (field->scope >= links(slot)) return INVALID_ARGUMENT;
            /* Only links of the fifth generation count these. */
            if (field->id > 200 && !state_int(slot, "nvlink5", 0)) return NOT_SUPPORTED;
            int up = (int)of_link(slot, field->scope, "state", 1);
            field->type = LINK_FIELDS[i].type;
            field->value.count = of_link(slot, field->scope, LINK_FIELDS[i].key, LINK_FIELDS[i].fallback);
            if (field->id == 164 && !up) field->value.count = 0;
            return SUCCESS;
        }
    return NOT_SUPPORTED;
}

EXPORT int nvmlDeviceGetFieldValues(device handle, int count, struct field *fields) {
    ENTER;
    for (int i = 0; i < count; i++) fields[i].code = field(slot, &fields[i]);
    return SUCCESS;
}

/* PCIe, clocks, heat and power */

NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation", 5)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width", 16)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_generation_max", 5)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max", 16)
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, "pcie_generation_gpu", 5)
NUMBER(nvmlDeviceGetPcieReplayCounter, "pcie_replays", 0)
NUMBER(nvmlDeviceGetPowerUsage, "power_mw", state_under_load(slot) ? BUSY_MW + 1500 * slot : 68920)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw", 700000)
NUMBER(nvmlDeviceGetPowerManagementLimit, "power_limit_mw", 700000)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power_limit_default_mw", 700000)
LONG(nvmlDeviceGetTotalEnergyConsumption, "energy_mj", (long long)time(NULL) * 70000)
NUMBER(nvmlDeviceGetPersistenceMode, "persistence", 1)
NUMBER(nvmlDeviceGetComputeMode, "compute_mode", 0)
PAIR(nvmlDeviceGetMigMode, "mig", 0, "mig_pending", state_int(slot, "mig", 0))
NUMBER(nvmlDeviceGetPerformanceState, "pstate", 0)
LONG(nvmlDeviceGetCurrentClocksThrottleReasons, "throttle", 1)

EXPORT int nvmlDeviceGetUtilizationRates(device handle, u32 rates[2]) {
    ENTER;
    rates[0] = (u32)state_int(slot, "utilization", state_under_load(slot) ? 100 : 0);
    rates[1] = (u32)state_int(slot, "utilization_memory", 0);
    return SUCCESS;
}

static int celsius_of(int slot) {
    return (int)state_int(slot, "temperature", state_under_load(slot) ? BUSY_C + slot % 4 : 29);
}

static int clock_of(int slot, u32 kind, u32 *mhz, const char *suffix, const long long fallback[4]) {
    static const char *const names[] = {"graphics", "sm", "memory", "video"};
    char key[64];
    if (kind > 3) return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "clock%s.%s", suffix, names[kind]);
    *mhz = (u32)state_int(slot, key, fallback[kind]);
    return SUCCESS;
}

EXPORT int nvmlDeviceGetClockInfo(device handle, u32 kind, u32 *mhz) {
    ENTER;
    long long now = state_under_load(slot) ? BUSY_MHZ : 345;
    return clock_of(slot, kind, mhz, "", (const long long[]){now, now, 2619, 765});
}

EXPORT int nvmlDeviceGetMaxClockInfo(device handle, u32 kind, u32 *mhz) {
    ENTER;
    return clock_of(slot, kind, mhz, "_max", (const long long[]){1980, 1980, 2619, 1545});
}

EXPORT int nvmlDeviceGetTemperature(device handle, u32 sensor, u32 *celsius) {
    ENTER;
    if (sensor) return INVALID_ARGUMENT;
    *celsius = (u32)celsius_of(slot);
    return SUCCESS;
}

EXPORT int nvmlDeviceGetTemperatureThreshold(device handle, u32 which, u32 *celsius) {
    static const char *const keys[] = {"limit.shutdown", "limit.slowdown", "limit.memory", "limit.gpu"};
    static const int limits[] = {95, 89, 95, 87};
    ENTER;
    if (which > 3) return NOT_SUPPORTED;
    *celsius = (u32)state_int(slot, keys[which], limits[which]);
    return SUCCESS;
}

EXPORT int nvmlDeviceGetViolationStatus(device handle, u32 policy, u64 times[2]) {
    char key[64];
    ENTER;
    snprintf(key, sizeof key, "violation.%u", policy);
    times[0] = (u64)time(NULL) * 1000000;
    times[1] = (u64)state_int(slot, key, 0);
    return SUCCESS;
}

/* The infoROM is intact unless `inforom_valid` is 0. */
EXPORT int nvmlDeviceValidateInforom(device handle) {
    ENTER;
    return state_int(slot, "inforom_valid", 1) ? SUCCESS : CORRUPTED_INFOROM;
}

#ifndef OLD
NUMBER(nvmlDeviceGetUnrepairableMemoryFlag_v1, "unrepairable", 0)

LONG(nvmlDeviceGetCurrentClocksEventReasons, "throttle", 1)

struct repair { u32 version, channel, tpc; };

EXPORT int nvmlDeviceGetRepairStatus(device handle, struct repair *status) {
    ENTER;
    if (status->version != (sizeof *status | 1 << 24)) return ARGUMENT_VERSION_MISMATCH;
    status->channel = (u32)state_int(slot, "repair.channel", 0);
    status->tpc = (u32)state_int(slot, "repair.tpc", 0);
    return SUCCESS;
}

struct temperature { u32 version, sensor; int celsius; };

EXPORT int nvmlDeviceGetTemperatureV(device handle, struct temperature *reading) {
    ENTER;
    if (reading->version != (sizeof *reading | 1 << 24)) return ARGUMENT_VERSION_MISMATCH;
    reading->celsius = celsius_of(slot);
    return SUCCESS;
}

struct margin { u32 version; int celsius; };

/* The way to the largest operating temperature, which is 87 C where 29 C leave 58. */
EXPORT int nvmlDeviceGetMarginTemperature(device handle, struct margin *margin) {
    ENTER;
    if (margin->version != (sizeof *margin | 1 << 24)) return ARGUMENT_VERSION_MISMATCH;
    margin->celsius = (int)state_int(slot, "margin", 87 - celsius_of(slot));
    return SUCCESS;
}

/* Each condition is reported, and is good. */
#define FABRIC_GOOD 0x1aa

struct fabric { unsigned char cluster[16]; int status; u32 clique, state; };
struct fabric2 { u32 version; unsigned char cluster[16]; int status; u32 clique, state, health; };
struct fabric3 { u32 version; unsigned char cluster[16]; int status; u32 clique, state, health; unsigned char summary; };

EXPORT int nvmlDeviceGetGpuFabricInfo(device handle, struct fabric *info) {
    ENTER;
    memset(info, 0, sizeof *info);
    info->status = (int)state_int(slot, "fabric.status", 0);
    info->state = (u32)state_int(slot, "fabric.state", 3);
    return SUCCESS;
}

EXPORT int nvmlDeviceGetGpuFabricInfoV(device handle, struct fabric3 *info) {
    ENTER;
    u32 version = info->version;
    if (version != (sizeof(struct fabric2) | 2 << 24) && version != (sizeof *info | 3 << 24))
        return ARGUMENT_VERSION_MISMATCH;
    memset(info, 0, version & 0xffffff);
    info->version = version;
    info->status = (int)state_int(slot, "fabric.status", 0);
    info->state = (u32)state_int(slot, "fabric.state", 3);
    info->health = (u32)state_int(slot, "fabric.health", FABRIC_GOOD);
    if (version >> 24 == 3) info->summary = (unsigned char)state_int(slot, "fabric.summary", 1);
    return SUCCESS;
}

struct process { u32 pid; u64 memory; u32 gpu_instance, compute_instance; };

/* Keys: processes (how many), process.N.pid, process.N.memory_mib. */
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(device handle, u32 *count, struct process *list) {
    char key[64];
    ENTER;
    u32 room = *count;
    *count = (u32)state_int(slot, "processes", 0);
    if (*count > room) return INSUFFICIENT_SIZE;
    for (u32 i = 0; i < *count; i++) {
        snprintf(key, sizeof key, "process.%u.pid", i);
        list[i].pid = (u32)state_int(slot, key, 4242 + i);
        snprintf(key, sizeof key, "process.%u.memory_mib", i);
        list[i].memory = mib(slot, key, 512);
        list[i].gpu_instance = list[i].compute_instance = ~0u;
    }
    return SUCCESS;
}
#endif

/* Topology: four GPUs a socket (40 is one NUMA node, 50 is another); all pairs reach each other. */
EXPORT int nvmlDeviceGetTopologyCommonAncestor(device handle, device other, u32 *level) {
    ENTER;
    if (slot_of(other) < 0) return INVALID_ARGUMENT;
    *level = slot / 4 == slot_of(other) / 4 ? 40 : 50;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetP2PStatus(device handle, device other, u32 which, u32 *status) {
    ENTER;
    (void)which;
    if (slot_of(other) < 0) return INVALID_ARGUMENT;
    *status = (u32)state_int(slot, "p2p", 0);
    return SUCCESS;
}

/* Events: `gpu.N.xid = 94` is delivered once to each set; `gpu.N.xid_serial` makes the same number
 * a new event. */

struct event_set { u64 wanted[SLOTS]; u64 seen[SLOTS]; };
struct event { device handle; u64 type, data; u32 gpu_instance, compute_instance; };
#define XID_EVENT 8ULL

static u64 xid_now(int slot) {
    u64 xid = (u64)state_int(slot, "xid", 0);
    return xid ? xid | (u64)state_int(slot, "xid_serial", 0) << 32 : 0;
}

EXPORT int nvmlEventSetCreate(struct event_set **set) {
    if (!ready) return UNINITIALIZED;
    *set = calloc(1, sizeof **set);
    return *set ? SUCCESS : 20;
}

EXPORT int nvmlDeviceRegisterEvents(device handle, u64 types, struct event_set *set) {
    ENTER;
    set->wanted[slot] |= types;
    set->seen[slot] = xid_now(slot);
    return SUCCESS;
}

EXPORT int nvmlEventSetWait_v2(struct event_set *set, struct event *event, u32 timeout_ms) {
    int code = state_return(NODE, __func__, SUCCESS);
    if (code) return code;
    for (u32 waited = 0;; waited += 10) {
        for (int slot = 0; slot < SLOTS; slot++) {
            u64 now = xid_now(slot);
            if (!(set->wanted[slot] & XID_EVENT) || now == set->seen[slot]) continue;
            set->seen[slot] = now;
            if (!now) continue;
            *event = (struct event){&devices[slot], XID_EVENT, now & 0xffffffff, ~0u, ~0u};
            return SUCCESS;
        }
        if (waited >= timeout_ms) return TIMEOUT;
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
}

EXPORT int nvmlEventSetFree(struct event_set *set) {
    free(set);
    return SUCCESS;
}
