//! Asking a GPU takes no heap memory once it has been asked a few times. Alone in its process, since the allocator counts for all threads; the
//! simulated library's own memory is its own allocator's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::{
    alloc::System,
    thread,
    time::{Duration, Instant},
};

use nvml_sim::{
    library,
    scenario::{Board, Code, Device, Load, MigInstance, NvLinks, Process, Scenario},
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use telemetry::{Now, OpenSource, Reading, TelemetrySource as _};
use telemetry_nvml::{LibraryChoice, NvmlOptions, NvmlSource};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn now() -> Now {
    let boottime_ns = nvml_sim::boottime_ns();
    Now { boottime_ns, clock_offset_ns: (nvml_sim::realtime_us() * 1_000).cast_signed() - boottime_ns.cast_signed() }
}

/// Asks all devices everything, over and over.
fn ask(source: &mut OpenSource, readings: &mut [Reading], duration: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < duration {
        for (device, reading) in source.devices.iter_mut().zip(readings.iter_mut()) {
            for probe in 0..device.probes().len() {
                device.ask(probe, now(), reading).unwrap();
            }
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Processes with these PIDs, of which the driver has a new sample five times a second.
fn busy(board: Device, pids: std::ops::Range<u32>) -> Device {
    let loads = vec![Load::new(40, 20), Load::new(60, 30)];
    pids.fold(board, |board, pid| {
        board.process(Process::compute(pid, u64::from(pid) << 20).in_instance(5, 0).sampled_every(200, loads.clone()))
    })
}

/// Every way in which a GPU is read, one GPU each.
fn machine(pids: std::ops::Range<u32>) -> Scenario {
    let each_link = NvLinks { all_links: false, ..NvLinks::new(4, 18) };
    let instance = |index, gpu_instance| MigInstance { index, gpu_instance, ..MigInstance::default() };
    [
        Device::h100().at_work(),
        Device::h100().at_work().nvlinks(each_link),
        Device::a100().at_work().with_mig(vec![instance(0, 1), instance(2, 5)]).lists_answer(Code::NO_PERMISSION),
        // Its PCIe traffic is read by a thread.
        Device::t4().at_work(),
        Device::h100().at_work().fails("nvmlDeviceGetPowerUsage", Code::TIMEOUT).fails("nvmlDeviceGetSamples", Code::NO_PERMISSION),
        Device::from(Board::H100).wide_rows(),
    ]
    .into_iter()
    .fold(Scenario::new(), |scenario, board| scenario.device(busy(board, pids.clone())))
}

#[test]
fn asking_takes_no_heap_memory_in_steady_state() {
    let directory = tempfile::tempdir().unwrap();
    let nvml = library::install(directory.path(), &[]).unwrap();
    nvml.play(&machine(1..65)).unwrap();
    let mut source = NvmlSource::new(NvmlOptions { library: LibraryChoice::Path(nvml.path()) }).open().unwrap();
    let mut readings = vec![Reading::default(); source.devices.len()];
    let first = Region::new(ALLOCATOR);
    ask(&mut source, &mut readings, Duration::from_secs(2));
    assert!(first.change().allocations > 0, "none is counted");
    assert!(readings.iter().all(|reading| reading.processes.len() == 64));
    assert!(readings[0].processes.iter().all(|process| process.utilization.is_some()));

    let region = Region::new(ALLOCATOR);
    ask(&mut source, &mut readings, Duration::from_secs(2));
    let change = region.change();
    assert_eq!((change.allocations, change.reallocations), (0, 0), "{change:?}");

    // One goes and another comes.
    nvml.play(&machine(2..66)).unwrap();
    let region = Region::new(ALLOCATOR);
    ask(&mut source, &mut readings, Duration::from_secs(1));
    let change = region.change();
    assert_eq!((change.allocations, change.reallocations), (0, 0), "{change:?}");
    assert!(readings.iter().all(|reading| reading.processes.iter().map(|process| process.pid).eq(2..66)));
}
