//! Ready-made scenarios, one for each thing that NVML has been seen to do in the field, named by it.

use super::{
    Answer, Board, Code, CostMode, Costs, Counter, Device, Ecc, Fault, FieldValue, Growth, Link, Load, MigInstance, NvLinks, Pcie, Process,
    ProcessUtilization, RawRow, Sample, SampleBuffer, Scenario, Utilization,
};
use crate::{
    abi, clock,
    symbols::{ABSENT_IN_470, Symbol, matching},
};

/// The process of the scenarios that have one.
pub const PID: u32 = 4_711;
/// Its load where it has one.
pub const BUSY: Load = Load::new(70, 30);
/// How much memory it holds, in bytes.
pub const USED: u64 = 1 << 30;

/// A scenario and the library that it takes.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// What is done.
    pub name: &'static str,
    /// The machine that does it, made at this moment: samples that are said to be so old are so old now.
    pub scenario: Scenario,
    /// Symbols that its library lacks, for [`crate::library::install`].
    pub hidden: &'static [&'static str],
}

macro_rules! behaviours {
    ($($(#[$doc:meta])* $name:ident $(without $hidden:expr)? => $scenario:expr;)*) => {
        $(
            $(#[$doc])*
            pub fn $name() -> Behaviour {
                Behaviour { name: stringify!($name), scenario: Scenario::from($scenario), hidden: [$($hidden,)? &[] as &[&str]][0] }
            }
        )*

        /// All of them.
        pub const ALL: &[fn() -> Behaviour] = &[$($name),*];
    };
}

behaviours! {
    /// New samples of a process appear once a second; in between there is nothing newer.
    a_process_is_sampled_once_a_second => plain().process(busy());
    /// The last sample stays the last: everything after is answered by `NOT_FOUND`.
    nothing_is_newer_than_the_last_sample => plain().process(holder().sampled_at(vec![ago(400)]));
    /// A cursor of 0 returns a process's last sample, however old.
    the_first_answer_holds_samples_of_long_ago => plain().process(holder().sampled_at(vec![ago(15_000)]));
    /// A count query answers with the ring's capacity, not with a number of processes.
    a_count_query_answers_the_capacity => plain().process(busy()).process_utilization(ProcessUtilization { capacity: 72, ..ring() });
    /// Several samples of one process in one answer.
    a_process_has_several_new_samples =>
        plain().process(holder().sampled_at(vec![ago(900), ago(500), ago(100)])).process_utilization(ProcessUtilization { every_sample: true, ..ring() });
    /// Percentages over 100, PID 0, times that are 0 or far off.
    garbage_stands_among_the_samples => plain().process(busy()).process_utilization(ProcessUtilization { raw_rows: garbage(), ..ring() });
    /// As with MIG, on vGPU guests and older WSL.
    process_utilization_is_not_supported => plain().process(busy()).process_utilization(Answer::NOT_SUPPORTED);
    /// Only the call of driver 550 and later.
    the_older_process_utilization_is_missing without &["nvmlDeviceGetProcessUtilization"] => plain().process(busy());
    /// The list grows between two calls.
    the_samples_grow_between_calls => plain().process(busy()).process_utilization_growth(Growth { times: 2, by: 40 });
    /// Samples name a PID that no list knows, as in some PID namespaces.
    the_samples_name_another_pid =>
        plain().process(holder()).process(Process { pid: 99, lists: Vec::new(), ..busy() });
    /// No list can be read, samples can.
    the_lists_are_refused => plain().process(busy()).lists_answer(Code::NOT_SUPPORTED);

    /// The same PID in the compute, the graphics and the MPS list, with different figures.
    a_process_stands_in_every_list =>
        plain().process(holder()).process(Process::graphics(PID, USED * 3)).process(Process::mps(PID, USED * 2));
    /// `usedGpuMemory` is all ones.
    used_memory_is_not_available => plain().process(holder().memory_not_available());
    /// A list is longer at the second call.
    the_lists_grow_between_calls => plain().processes(many(40)).list_growth(Growth { times: 2, by: 30 });
    /// Rows of 32 bytes where the struct has 24, with more processes than a buffer for the narrow ones holds.
    an_early_r535_writes_wide_rows => Scenario::from(plain().processes(many(40)).wide_rows()).driver("535.43.02");
    /// Without MIG the instance ids are all ones.
    instances_are_all_ones_without_mig => plain().process(holder());
    /// The parent of MIG devices lists their processes, and reports no utilization.
    a_mig_parent_lists_its_instances => mig();
    /// The parent of MIG devices refuses its lists to this user; they do not.
    a_mig_parent_refuses_its_lists => mig().lists_answer(Code::NO_PERMISSION);
    /// One process in two compute instances of one GPU instance.
    a_process_is_in_two_compute_instances =>
        Device::from(Board::A100).with_mig(vec![instance(0, 1, 0), instance(1, 1, 1)])
            .process(holder().in_instance(1, 0)).process(Process::compute(PID, USED / 2).in_instance(1, 1));

    /// Both versions of the memory call are not supported.
    memory_is_integrated => Board::Gb10;
    /// Fan speed is not supported on passively cooled boards.
    a_board_is_cooled_passively => plain().fans(Vec::new());
    /// A fan faster than its nominal speed.
    a_fan_turns_faster_than_nominal => plain().fans(vec![130]);
    /// ECC totals fail with ECC off.
    ecc_is_off => plain().ecc(Ecc::default());
    /// Success with zeros, and PIDs that no process has.
    a_jetson_answers_zeros =>
        plain().utilization(0, 0).memory(0, 0, 0).power_mw(0).process(Process::compute(0, 5)).process(Process::compute(u32::MAX, 5));
    /// One metric's failure.
    one_metric_fails => plain().power_mw(Answer::error(Code::UNKNOWN)).compute_mode(3);
    /// Version 2 of the memory call answers `FUNCTION_NOT_FOUND`.
    memory_of_version_2_is_refused => plain().memory(1_000, 300, 50).fails("nvmlDeviceGetMemoryInfo_v2", Code::FUNCTION_NOT_FOUND);
    /// Only the name that the event reasons had before driver 535; a bit that no header names.
    event_reasons_have_their_older_name without &["nvmlDeviceGetCurrentClocksEventReasons"] => plain().event_reasons(1_u64 << 63 | 4);
    /// Codes that wrappers do not know.
    codes_of_newer_drivers =>
        plain().power_mw(Answer::error(Code::INSUFFICIENT_RESOURCES)).encoder(Answer::error(Code::NOT_READY))
            .decoder(Answer::error(Code::INVALID_STATE)).compute_mode(3);
    /// A name that begins with 0xF8.
    a_name_is_broken_utf8 => plain().name(&b"\xf8RTX"[..]);
    /// The device's utilization with sample times of its own, newer and older than now.
    utilization_has_its_own_times => plain().utilization(71, 53);
    /// Utilization without samples.
    utilization_has_no_times => Device { utilization: Utilization { gpu: 61, memory: 12 }.into(), ..plain() };
    /// Samples of the utilization of which every other is no percentage.
    garbage_stands_in_the_utilization =>
        plain().samples(abi::NVML_GPU_UTILIZATION_SAMPLES, SampleBuffer::periodic(166_667, vec![33, 37_100]));

    /// PCIe counters that do not wrap.
    pcie_counters_of_64_bits => carrying(Pcie::link(5, 16), 64);
    /// PCIe counters that wrap several times between two readings.
    pcie_counters_of_32_bits_on_a_fast_link => carrying(Pcie::link(5, 16), 32);
    /// PCIe counters that cannot wrap twice between two readings.
    pcie_counters_of_32_bits_on_a_slow_link => carrying(Pcie::link(2, 4), 32);
    /// No PCIe counters before driver 555: only the call that blocks.
    pcie_counters_are_missing => { let pcie = carrying(Pcie::link(3, 16), 64).pcie.without_counters(); plain().pcie(pcie) };
    /// PCIe counters of value type 6, which is too narrow.
    values_of_type_6 =>
        carrying(Pcie::link(5, 16), 64).field(abi::NVML_FI_DEV_PCIE_COUNT_TX_BYTES, FieldValue::UnsignedShort(7))
            .field(abi::NVML_FI_DEV_PCIE_COUNT_RX_BYTES, FieldValue::UnsignedShort(9));
    /// `nvmlDeviceGetPcieThroughput` does not return.
    the_pcie_call_hangs => { let pcie = carrying(Pcie::link(3, 16), 64).pcie.without_counters(); plain().pcie(pcie).hangs("nvmlDeviceGetPcieThroughput") };
    /// Counters of all NVLinks together.
    nvlinks_are_counted_together => plain().nvlinks(links(NvLinks::default()));
    /// Counters of each NVLink only.
    nvlinks_are_counted_each => plain().nvlinks(links(NvLinks { all_links: false, ..NvLinks::default() }));
    /// NVLink 5 counts bytes.
    nvlinks_are_counted_in_bytes =>
        plain().nvlinks(links(NvLinks { version: 7, all_links: false, kib_counters: false, byte_counters: true, ..NvLinks::default() }));

    /// GPUs that cannot be had at start, for each of the reasons seen.
    gpus_have_no_handle =>
        [Code::GPU_IS_LOST, Code::INSUFFICIENT_POWER, Code::RESET_REQUIRED, Code::UNKNOWN, Code::NO_DATA].into_iter()
            .fold(Scenario::new(), |scenario, code| scenario.device(plain().fails("nvmlDeviceGetHandleByIndex*", code))).device(plain());
    /// One GPU fell off the bus after it was opened; the other did not.
    a_gpu_is_lost => Scenario::from(after_opening(plain(), Code::GPU_IS_LOST)).device(plain());
    /// One GPU's calls do not return.
    a_gpu_hangs => Scenario::from(plain().hangs("nvmlDeviceGetTemperature*")).device(plain());
    /// A container that lost its devices: 999 from everything.
    everything_is_unknown => Scenario::from(plain()).fails("nvmlDevice*", Code::UNKNOWN);
    /// The same, while the library is open.
    everything_becomes_unknown => after_opening(plain(), Code::UNKNOWN);
    /// The driver is unloaded under the open library.
    the_driver_is_unloaded => after_opening(plain(), Code::DRIVER_NOT_LOADED);
    /// The library was shut down under the caller.
    the_library_is_uninitialized => after_opening(plain(), Code::UNINITIALIZED);
    /// Driver and library are of different versions.
    the_driver_is_of_another_version => Scenario::from(plain()).init_fails(Code::LIB_RM_VERSION_MISMATCH);
    /// There is a library and no driver yet.
    the_driver_is_not_loaded => Scenario::from(plain()).init_fails(Code::DRIVER_NOT_LOADED);
    /// More GPUs than there are slots.
    more_gpus_than_slots => Scenario::new().devices(18, plain());
    /// The oldest driver: its symbols, its fields.
    a_driver_of_version_470 without ABSENT_IN_470 => Scenario::from(Device::from(Board::A100).at_work().process(busy())).driver_470();

    /// What calls cost.
    calls_cost_time => Scenario::from(plain().process(busy())).costs(Costs::published(CostMode::Sleep));
    /// What calls cost, on the CPU.
    calls_cost_cpu_time => Scenario::from(plain().process(busy())).costs(Costs::published(CostMode::Spin));
    /// What calls cost, under a lock that is the whole driver's.
    calls_hold_one_lock => Scenario::from(plain().process(busy())).device(plain().process(busy())).costs(Costs::published(CostMode::OneLock));
    /// A graphics list that takes 4.5 ms.
    a_laptops_graphics_list_is_slow => Device::from(Board::Laptop4090).process(Process::graphics(PID, USED));
    /// A field that is not supported costs more than one that is.
    unsupported_fields_are_dear => Scenario::from(plain()).costs(Costs::published(CostMode::Sleep));
}

impl<D: Into<Device>> From<D> for Scenario {
    fn from(device: D) -> Self {
        Self::new().device(device)
    }
}

impl Scenario {
    /// Driver 470, which lacks the field values that later drivers have. Its library lacks [`ABSENT_IN_470`] too.
    #[must_use]
    pub fn driver_470(mut self) -> Self {
        for device in &mut self.devices {
            device.pcie = std::mem::take(&mut device.pcie).without_counters();
            device.average_power_mw = Answer::NOT_SUPPORTED;
            if let Answer::Value(links) = &mut device.nvlinks {
                links.byte_counters = false;
            }
        }
        self.driver("470.256.02")
    }
}

/// A device that answers, and reports hardly anything.
fn plain() -> Device {
    Device::default().temperature_c(40).process_utilization(ring())
}

fn ring() -> ProcessUtilization {
    ProcessUtilization::default()
}

fn holder() -> Process {
    Process::compute(PID, USED)
}

fn busy() -> Process {
    holder().busy(BUSY)
}

fn many(count: u32) -> Vec<Process> {
    (0..count).map(|n| Process::compute(1_000 + n, u64::from(n) << 20)).collect()
}

/// A sample so many milliseconds old.
fn ago(ms: u64) -> Sample {
    Sample::new(clock::realtime_us() - ms * 1_000, BUSY)
}

fn garbage() -> Vec<RawRow> {
    let row = |pid, at_us, sm| RawRow { pid, sample: Sample::new(at_us, Load::new(sm, 0)) };
    let now = clock::realtime_us();
    vec![
        row(PID, now, 37_100),
        row(0, now, 50),
        row(u32::MAX, now, 50),
        row(PID, 0, 99),
        row(PID, 12_345, 99),
        row(PID, now + 3_600_000_000, 99),
        row(PID, u64::MAX, 99),
    ]
}

fn instance(index: u32, gpu_instance: u32, compute_instance: u32) -> MigInstance {
    MigInstance { index, gpu_instance, compute_instance, ..MigInstance::default() }
}

/// A board with two MIG devices, and a process in both.
fn mig() -> Device {
    let board = Device::from(Board::A100).with_mig(vec![instance(0, 1, 0), instance(2, 5, 0)]);
    board.process(holder().in_instance(1, 0)).process(Process::compute(PID, USED / 2).in_instance(5, 0))
}

/// A link that carries 1 and 0.5 GB/s.
fn carrying(link: Pcie, counter_bits: u32) -> Device {
    plain().pcie(Pcie { counter_bits, ..link.traffic(1_000_000, 500_000) })
}

/// Two links that carry 1 and 0.5 GB/s each.
fn links(form: NvLinks) -> NvLinks {
    let link = || Link { active: true, tx: Counter::growing(1_000_000_000), rx: Counter::growing(500_000_000) };
    NvLinks { links: vec![link(), link()], ..form }
}

/// A device whose handle can be had, and whose calls answer this code.
fn after_opening(device: Device, code: Code) -> Device {
    let for_opening = |symbol: &Symbol| {
        [
            "nvmlDeviceGetHandle*",
            "nvmlDeviceGetCount*",
            "nvmlDeviceGetUUID",
            "nvmlDeviceGetName",
            "nvmlDeviceGetPciInfo*",
            "nvmlDeviceGetMaxPcie*",
        ]
        .iter()
        .any(|call| matching(call, *symbol))
    };
    let others = Symbol::ALL.iter().filter(|symbol| matching("nvmlDevice*", **symbol) && !for_opening(symbol));
    others.fold(device, |device, symbol| device.fault(Fault::error(symbol.name(), code)))
}

#[cfg(test)]
mod tests {
    use super::ALL;

    #[test]
    fn each_behaviour_can_be_written_and_has_its_own_name() {
        let directory = tempfile::tempdir().unwrap();
        let mut names: Vec<_> = ALL
            .iter()
            .map(|behaviour| {
                let behaviour = behaviour();
                behaviour.scenario.write(&directory.path().join(behaviour.name)).unwrap();
                behaviour.name
            })
            .collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }
}
