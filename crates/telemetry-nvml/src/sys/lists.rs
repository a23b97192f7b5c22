//! The calls that fill a buffer with rows of processes.

use std::{ffi::c_uint, ptr, slice};

use nvml_wrapper_sys::bindings as ffi;

use super::{Code, Gpu, struct_version, symbol};
use crate::pure::{
    processes::ListKind,
    samples::ProcessRow,
    stride::{self, Layout, ListRow, SENTINEL, WIDEST},
};

/// A list that grows between two calls is asked for again, so often.
const ATTEMPTS: usize = 4;
/// No machine has more processes on a GPU; a driver that says so is not believed.
const MOST_ROWS: usize = 1 << 16;
const FIRST_ROWS: usize = 256;

/// How many rows to try next when a buffer of `capacity` was too small and the driver asked for `wanted`.
fn grown(capacity: usize, wanted: u32) -> usize {
    (wanted as usize + wanted as usize / 4).max(capacity * 2).min(MOST_ROWS)
}

/// Which of a list's symbols is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListVersion {
    V3,
    V2,
    V1,
}

impl ListVersion {
    /// The one before it.
    pub(crate) const fn older(self) -> Option<Self> {
        match self {
            Self::V3 => Some(Self::V2),
            Self::V2 => Some(Self::V1),
            Self::V1 => None,
        }
    }
}

type FillWide = unsafe extern "C" fn(ffi::nvmlDevice_t, *mut c_uint, *mut ffi::nvmlProcessInfo_v2_t) -> ffi::nvmlReturn_t;
type FillNarrow = unsafe extern "C" fn(ffi::nvmlDevice_t, *mut c_uint, *mut ffi::nvmlProcessInfo_v1_t) -> ffi::nvmlReturn_t;

enum Fill {
    Wide(FillWide),
    Narrow(FillNarrow),
}

/// Room for the widest row that a driver writes, aligned as its structs are.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct WidestRow([u8; WIDEST]);

const EMPTY_ROW: WidestRow = WidestRow([SENTINEL; WIDEST]);

/// A buffer for process lists, kept between calls.
#[derive(Default)]
pub(crate) struct ListBuffer {
    rows: Vec<WidestRow>,
}

impl ListBuffer {
    fn bytes(&self) -> &[u8] {
        // SAFETY: a row is 32 bytes without padding (checked below), all initialised, and rows follow each other.
        unsafe { slice::from_raw_parts(self.rows.as_ptr().cast(), self.rows.len() * WIDEST) }
    }
}

const _: () = assert!(size_of::<WidestRow>() == WIDEST && align_of::<WidestRow>() >= align_of::<ffi::nvmlProcessInfo_v2_t>());
const _: () = assert!(size_of::<ffi::nvmlProcessInfo_v2_t>() == 24 && size_of::<ffi::nvmlProcessInfo_v1_t>() == 16);

impl std::fmt::Debug for ListBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ListBuffer({} rows)", self.rows.len())
    }
}

/// Buffers for process utilization, kept between calls.
#[derive(Debug, Default)]
pub(crate) struct ProcessBuffer {
    samples: Vec<ffi::nvmlProcessUtilizationSample_t>,
    infos: Vec<ffi::nvmlProcessUtilizationInfo_v1_t>,
    /// What came back.
    pub(crate) rows: Vec<ProcessRow>,
    /// One sample for each PID of `rows`, by PID.
    pub(crate) folded: Vec<(u32, telemetry::ProcessUtilization)>,
}

impl Gpu {
    /// Reads a process list in one call and appends its rows; [`Code::FUNCTION_NOT_FOUND`] when the library lacks this version.
    pub(crate) fn process_list(
        &self,
        kind: ListKind,
        version: ListVersion,
        buffer: &mut ListBuffer,
        rows: &mut Vec<ListRow>,
    ) -> Result<(), Code> {
        let (fill, layout) = match self.list_call(kind, version)? {
            fill @ Fill::Wide(_) => (fill, Layout::V2),
            fill @ Fill::Narrow(_) => (fill, Layout::V1),
        };
        let mut capacity = buffer.rows.len().max(FIRST_ROWS);
        for _ in 0..ATTEMPTS {
            buffer.rows.clear();
            buffer.rows.resize(capacity, EMPTY_ROW);
            let mut count = buffer.rows.len() as c_uint;
            let start = buffer.rows.as_mut_ptr();
            let returned = match fill {
                // SAFETY: the handle is this library's; the buffer has room for so many of the widest rows, which are wider than these.
                Fill::Wide(call) => unsafe { call(self.handle, &raw mut count, start.cast()) },
                // SAFETY: as above.
                Fill::Narrow(call) => unsafe { call(self.handle, &raw mut count, start.cast()) },
            };
            match Code::check(returned) {
                Ok(()) => {
                    stride::rows(buffer.bytes(), count as usize, layout, rows);
                    return Ok(());
                }
                Err(Code::INSUFFICIENT_SIZE) if capacity < MOST_ROWS => capacity = grown(capacity, count),
                Err(code) => return Err(code),
            }
        }
        Err(Code::INSUFFICIENT_SIZE)
    }

    fn list_call(&self, kind: ListKind, version: ListVersion) -> Result<Fill, Code> {
        let lib = self.lib();
        Ok(match (kind, version) {
            (ListKind::Compute, ListVersion::V3) => Fill::Wide(symbol(&lib.nvmlDeviceGetComputeRunningProcesses_v3)?),
            (ListKind::Compute, ListVersion::V2) => Fill::Wide(symbol(&lib.nvmlDeviceGetComputeRunningProcesses_v2)?),
            (ListKind::Compute, ListVersion::V1) => Fill::Narrow(symbol(&lib.nvmlDeviceGetComputeRunningProcesses)?),
            (ListKind::Graphics, ListVersion::V3) => Fill::Wide(symbol(&lib.nvmlDeviceGetGraphicsRunningProcesses_v3)?),
            (ListKind::Graphics, ListVersion::V2) => Fill::Wide(symbol(&lib.nvmlDeviceGetGraphicsRunningProcesses_v2)?),
            (ListKind::Graphics, ListVersion::V1) => Fill::Narrow(symbol(&lib.nvmlDeviceGetGraphicsRunningProcesses)?),
            (ListKind::Mps, ListVersion::V3) => Fill::Wide(symbol(&lib.nvmlDeviceGetMPSComputeRunningProcesses_v3)?),
            (ListKind::Mps, ListVersion::V2) => Fill::Wide(symbol(&lib.nvmlDeviceGetMPSComputeRunningProcesses_v2)?),
            (ListKind::Mps, ListVersion::V1) => Fill::Narrow(symbol(&lib.nvmlDeviceGetMPSComputeRunningProcesses)?),
        })
    }

    /// The processes' samples after `since_us`, into the emptied `buffer.rows`, in one call: its count query gives the ring's capacity, not
    /// a number of processes. [`Code::NOT_FOUND`]: none.
    pub(crate) fn process_utilization(&self, since_us: u64, buffer: &mut ProcessBuffer) -> Result<(), Code> {
        const EMPTY: ffi::nvmlProcessUtilizationSample_t =
            ffi::nvmlProcessUtilizationSample_t { pid: 0, timeStamp: 0, smUtil: 0, memUtil: 0, encUtil: 0, decUtil: 0 };
        buffer.rows.clear();
        let call = symbol(&self.lib().nvmlDeviceGetProcessUtilization)?;
        let mut capacity = buffer.samples.len().max(FIRST_ROWS);
        for _ in 0..ATTEMPTS {
            buffer.samples.clear();
            buffer.samples.resize(capacity, EMPTY);
            let mut count = capacity as c_uint;
            // SAFETY: the handle is this library's; the buffer holds as many samples as the call is told.
            let returned = unsafe { call(self.handle, buffer.samples.as_mut_ptr(), &raw mut count, since_us) };
            match Code::check(returned) {
                Ok(()) => {
                    buffer.rows.extend(buffer.samples.iter().take(count as usize).map(|row| ProcessRow {
                        pid: row.pid,
                        stamp_us: row.timeStamp,
                        sm_pct: row.smUtil,
                        mem_pct: row.memUtil,
                        enc_pct: row.encUtil,
                        dec_pct: row.decUtil,
                    }));
                    return Ok(());
                }
                Err(Code::INSUFFICIENT_SIZE) if capacity < MOST_ROWS => capacity = grown(capacity, count),
                Err(code) => return Err(code),
            }
        }
        Err(Code::INSUFFICIENT_SIZE)
    }

    /// The same through the newer call.
    pub(crate) fn processes_utilization_info(&self, since_us: u64, buffer: &mut ProcessBuffer) -> Result<(), Code> {
        const EMPTY: ffi::nvmlProcessUtilizationInfo_v1_t = ffi::nvmlProcessUtilizationInfo_v1_t {
            timeStamp: 0,
            pid: 0,
            smUtil: 0,
            memUtil: 0,
            encUtil: 0,
            decUtil: 0,
            jpgUtil: 0,
            ofaUtil: 0,
        };
        buffer.rows.clear();
        let call = symbol(&self.lib().nvmlDeviceGetProcessesUtilizationInfo)?;
        let mut capacity = buffer.infos.len().max(FIRST_ROWS);
        for _ in 0..ATTEMPTS {
            buffer.infos.clear();
            buffer.infos.resize(capacity, EMPTY);
            let mut info = ffi::nvmlProcessesUtilizationInfo_t {
                version: struct_version::<ffi::nvmlProcessesUtilizationInfo_t>(1),
                processSamplesCount: capacity as c_uint,
                lastSeenTimeStamp: since_us,
                procUtilArray: ptr::from_mut(buffer.infos.as_mut_slice()).cast(),
            };
            // SAFETY: the handle is this library's; the struct is of the version that it says and points to as many rows.
            let returned = unsafe { call(self.handle, &raw mut info) };
            match Code::check(returned) {
                Ok(()) => {
                    buffer.rows.extend(buffer.infos.iter().take(info.processSamplesCount as usize).map(|row| ProcessRow {
                        pid: row.pid,
                        stamp_us: row.timeStamp,
                        sm_pct: row.smUtil,
                        mem_pct: row.memUtil,
                        enc_pct: row.encUtil,
                        dec_pct: row.decUtil,
                    }));
                    return Ok(());
                }
                Err(Code::INSUFFICIENT_SIZE) if capacity < MOST_ROWS => capacity = grown(capacity, info.processSamplesCount),
                Err(code) => return Err(code),
            }
        }
        Err(Code::INSUFFICIENT_SIZE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_grows_by_what_is_asked_and_within_bounds() {
        assert_eq!(grown(256, 400), 512);
        assert_eq!(grown(256, 4_000), 5_000);
        assert_eq!(grown(256, u32::MAX), MOST_ROWS);
        assert_eq!(grown(256, 0), 512);
    }

    #[test]
    fn the_version_words_are_nvmls() {
        assert_eq!(struct_version::<ffi::nvmlMemory_v2_t>(2), 0x0200_0028);
        assert_eq!(struct_version::<ffi::nvmlProcessesUtilizationInfo_t>(1), 0x0100_0018);
        assert_eq!(struct_version::<ffi::nvmlTemperature_t>(1), 0x0100_000C);
    }
}
