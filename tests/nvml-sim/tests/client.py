"""Reads everything that NVIDIA's client can ask of the simulated library and prints it as JSON."""

import ctypes
import json
import sys

library = sys.argv[1]
_cdll = ctypes.CDLL
ctypes.CDLL = lambda name, *rest, **options: _cdll(library if name == "libnvidia-ml.so.1" else name, *rest, **options)

import pynvml as n  # noqa: E402


def plain(value):
    """What JSON can say of a structure, an array or bytes."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, ctypes.Structure):
        return {name: plain(getattr(value, name)) for name, *_ in value._fields_}
    if isinstance(value, ctypes._SimpleCData):
        return value.value
    if isinstance(value, ctypes.Union):
        return value.ullVal
    if hasattr(value, "__dict__"):
        return {name: plain(member) for name, member in vars(value).items()}
    return value


def ask(function, *arguments):
    """The answer, or the return code under "error"."""
    try:
        return plain(function(*arguments))
    except n.NVMLError as error:
        return {"error": error.value}


def details(handle, mode):
    """The list of a mode. The client's own function stumbles over memory that is not available."""
    asked = n.c_nvmlProcessDetailList_t()
    asked.version = n.nvmlProcessDetailList_v1
    asked.mode = mode
    function = n._nvmlGetFunctionPointer("nvmlDeviceGetRunningProcessDetailList")
    answer = function(handle, ctypes.byref(asked))
    if answer == n.NVML_ERROR_INSUFFICIENT_SIZE:
        rows = (n.c_nvmlProcessDetail_v1_t * asked.numProcArrayEntries)()
        asked.procArray = ctypes.cast(rows, ctypes.POINTER(n.c_nvmlProcessDetail_v1_t))
        answer = function(handle, ctypes.byref(asked))
    return {"error": answer} if answer else [plain(asked.procArray[at]) for at in range(asked.numProcArrayEntries)]


def device(handle):
    answers = {
        "name": ask(n.nvmlDeviceGetName, handle),
        "uuid": ask(n.nvmlDeviceGetUUID, handle),
        "index": ask(n.nvmlDeviceGetIndex, handle),
        "minor": ask(n.nvmlDeviceGetMinorNumber, handle),
        "pci": ask(n.nvmlDeviceGetPciInfo_v3, handle),
        "utilization": ask(n.nvmlDeviceGetUtilizationRates, handle),
        "memory": ask(n.nvmlDeviceGetMemoryInfo, handle),
        "memory_v2": ask(n.nvmlDeviceGetMemoryInfo, handle, n.nvmlMemory_v2),
        "temperature": ask(n.nvmlDeviceGetTemperature, handle, n.NVML_TEMPERATURE_GPU),
        "temperature_v": ask(n.nvmlDeviceGetTemperatureV, handle, n.NVML_TEMPERATURE_GPU),
        "power": ask(n.nvmlDeviceGetPowerUsage, handle),
        "energy": ask(n.nvmlDeviceGetTotalEnergyConsumption, handle),
        "clocks": [ask(n.nvmlDeviceGetClockInfo, handle, kind) for kind in range(4)],
        "clocks_by_id": [ask(n.nvmlDeviceGetClock, handle, kind, n.NVML_CLOCK_ID_CURRENT) for kind in range(4)],
        "max_clocks": [ask(n.nvmlDeviceGetMaxClockInfo, handle, kind) for kind in range(4)],
        "event_reasons": ask(n.nvmlDeviceGetCurrentClocksEventReasons, handle),
        "throttle_reasons": ask(n.nvmlDeviceGetCurrentClocksThrottleReasons, handle),
        "pcie": [ask(n.nvmlDeviceGetPcieThroughput, handle, counter) for counter in range(2)],
        "link": [
            ask(function, handle)
            for function in (
                n.nvmlDeviceGetCurrPcieLinkGeneration,
                n.nvmlDeviceGetCurrPcieLinkWidth,
                n.nvmlDeviceGetMaxPcieLinkGeneration,
                n.nvmlDeviceGetMaxPcieLinkWidth,
            )
        ],
        "encoder": ask(n.nvmlDeviceGetEncoderUtilization, handle),
        "decoder": ask(n.nvmlDeviceGetDecoderUtilization, handle),
        "ecc": [
            ask(n.nvmlDeviceGetTotalEccErrors, handle, kind, counter) for counter in range(2) for kind in range(2)
        ],
        "ecc_mode": ask(n.nvmlDeviceGetEccMode, handle),
        "fans": ask(n.nvmlDeviceGetNumFans, handle),
        "fan": ask(n.nvmlDeviceGetFanSpeed, handle),
        "fan_1": ask(n.nvmlDeviceGetFanSpeed_v2, handle, 1),
        "compute_mode": ask(n.nvmlDeviceGetComputeMode, handle),
        "persistence_mode": ask(n.nvmlDeviceGetPersistenceMode, handle),
        "nvlink": [
            [ask(function, handle, link) for function in (n.nvmlDeviceGetNvLinkState, n.nvmlDeviceGetNvLinkVersion)]
            for link in (0, 1, 35, 36)
        ],
        "samples": [ask(n.nvmlDeviceGetSamples, handle, kind, 0) for kind in (1, 2, 3)],
        "samples_after": ask(n.nvmlDeviceGetSamples, handle, 1, 2000),
        "compute": ask(n.nvmlDeviceGetComputeRunningProcesses_v3, handle),
        "graphics": ask(n.nvmlDeviceGetGraphicsRunningProcesses_v3, handle),
        "mps": ask(n.nvmlDeviceGetMPSComputeRunningProcesses_v3, handle),
        "details": [details(handle, mode) for mode in range(4)],
        "processes": ask(n.nvmlDeviceGetProcessUtilization, handle, 0),
        "processes_after": ask(n.nvmlDeviceGetProcessUtilization, handle, 5000),
        "processes_none": ask(n.nvmlDeviceGetProcessUtilization, handle, 9000),
        "all_processes": ask(n.nvmlDeviceGetProcessesUtilizationInfo, handle, 0),
        "mig_mode": ask(n.nvmlDeviceGetMigMode, handle),
        "mig_count": ask(n.nvmlDeviceGetMaxMigDeviceCount, handle),
        "is_mig": ask(n.nvmlDeviceIsMigDeviceHandle, handle),
        "gpu_instance": ask(n.nvmlDeviceGetGpuInstanceId, handle),
        "compute_instance": ask(n.nvmlDeviceGetComputeInstanceId, handle),
    }
    fields = [83, 91, 138, (138, 1), (138, 0xFFFFFFFF), (139, 0xFFFFFFFF), 185, 186, 197, 198, (202, 1), (204, 0), 300, 301, 302]
    answers["fields"] = ask(field_values, handle, fields)
    return answers


def field_values(handle, fields):
    return [
        [value.fieldId, value.scopeId, value.valueType, value.nvmlReturn, value.value.ullVal, value.timestamp > 1e15]
        for value in n.nvmlDeviceGetFieldValues(handle, fields)
    ]


def instances(handle):
    """What is found under each index of a MIG device."""
    found = []
    for index in range(8):
        try:
            mig = n.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            parent = n.nvmlDeviceGetIndex(n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig))
            found.append({"parent": parent, "device": device(mig)})
        except n.NVMLError as error:
            found.append({"error": error.value})
    return found


n.nvmlInit()
handles = [n.nvmlDeviceGetHandleByIndex(index) for index in range(n.nvmlDeviceGetCount())]
result = {
    "driver": n.nvmlSystemGetDriverVersion(),
    "nvml": n.nvmlSystemGetNVMLVersion(),
    "cuda": [n.nvmlSystemGetCudaDriverVersion(), n.nvmlSystemGetCudaDriverVersion_v2()],
    "strings": [plain(n.nvmlErrorString(code)) for code in (0, 3, 15, 999)],
    "devices": [device(handle) for handle in handles],
    "by_uuid": [n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(handle))) for handle in handles],
    "by_bus_id": [
        n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId(n.nvmlDeviceGetPciInfo_v3(handle).busId)) for handle in handles
    ],
    "beyond": ask(n.nvmlDeviceGetHandleByIndex, len(handles)),
    "instances": [instances(handle) for handle in handles],
}
n.nvmlShutdown()
try:
    n.nvmlDeviceGetCount()
except n.NVMLError as error:
    result["after_shutdown"] = error.value
json.dump(result, sys.stdout)
