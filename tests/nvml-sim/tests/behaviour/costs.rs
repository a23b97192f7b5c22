//! What calls cost.

use std::{
    fs,
    time::{Duration, Instant},
};

use nix::unistd::gettid;
use nvml_sim::scenario::{CostMode, Costs, Device, Fault, Scenario};

use crate::nvml::{Nvml, wait_for};

const COST: Duration = Duration::from_millis(300);

/// The states, as in /proc, in which a thread is seen during a call that costs [`COST`].
fn states_during_a_call(mode: CostMode) -> Vec<char> {
    let costs = Costs { mode, ..Costs::default() }.call("nvmlDeviceGetPowerUsage", COST.as_micros() as u64);
    let nvml = Nvml::start(&Scenario::new().costs(costs).device(Device::a100()));
    let (named, name) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let nvml = &nvml;
        let caller = scope.spawn(move || {
            let device = nvml.device(0);
            named.send(gettid()).unwrap();
            let begun = Instant::now();
            nvml.power(device).unwrap();
            begun.elapsed()
        });
        let thread = name.recv().unwrap();
        wait_for("the call", || nvml.installed.stats().unwrap().calls("nvmlDeviceGetPowerUsage") == 1);
        let mut states = Vec::new();
        while nvml.installed.stats().unwrap().in_flight() == 1 {
            // A caller that has gone meanwhile has made its call.
            let Ok(stat) = fs::read_to_string(format!("/proc/self/task/{thread}/stat")) else { break };
            let state = stat.rsplit(") ").next().unwrap().chars().next().unwrap();
            // What was read after the call's end says nothing.
            if nvml.installed.stats().unwrap().in_flight() == 1 {
                states.push(state);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(caller.join().unwrap() >= COST);
        states
    })
}

#[test]
fn a_sleeping_call_takes_its_time_asleep() {
    let states = states_during_a_call(CostMode::Sleep);
    assert!(states.contains(&'S'), "{states:?}");
}

#[test]
fn a_spinning_call_takes_its_time_on_the_cpu() {
    let states = states_during_a_call(CostMode::Spin);
    assert!(!states.is_empty() && states.iter().all(|state| *state == 'R'), "{states:?}");
}

#[test]
fn calls_wait_for_the_one_lock_and_the_account_says_how_long() {
    let scenario =
        |device| Scenario::new().costs(Costs { mode: CostMode::OneLock, ..Costs::default() }).device(device).device(Device::a100());
    let nvml = Nvml::start(&scenario(Device::a100().fault(Fault::hang("nvmlDeviceGetPowerUsage"))));
    let in_flight = || nvml.installed.stats().unwrap().in_flight();
    let handles = [0, 1].map(|index| nvml.device(index).0.addr());
    let call = |index: usize| nvml.power(nvml_sim::abi::nvmlDevice_t(std::ptr::without_provenance_mut(handles[index])));
    std::thread::scope(|scope| {
        let holder = scope.spawn(|| call(0));
        wait_for("the call that holds the lock", || in_flight() == 1);
        let waiter = scope.spawn(|| call(1));
        wait_for("the call that waits", || in_flight() == 2);
        let begun = Instant::now();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(in_flight(), 2);
        let held = begun.elapsed();
        nvml.installed.play(&scenario(Device::a100())).unwrap();
        assert!(holder.join().unwrap().is_ok() && waiter.join().unwrap().is_ok());
        let waited = nvml.installed.stats().unwrap().on("nvmlDeviceGetPowerUsage", 1);
        assert!(waited.waiting >= held && waited.time >= waited.waiting, "{waited:?}");
    });
}

#[test]
fn the_account_knows_time_by_symbol_device_and_field() {
    let costs = Costs { unsupported_field_us: 20_000, ..Costs::published(CostMode::Sleep) };
    let nvml =
        Nvml::start(&Scenario::new().costs(costs).device(Device::a100()).device(Device::t4().costs("nvmlDeviceGetPowerUsage", 200_000)));
    let [first, second] = [0, 1].map(|index| nvml.device(index));
    let before = nvml.installed.stats().unwrap();
    nvml.power(first).unwrap();
    nvml.power(second).unwrap();
    nvml.field(second, 185, 0).unwrap_err();
    nvml.field(second, 186, 0).unwrap();
    let stats = nvml.installed.stats().unwrap().since(&before);
    let ms = Duration::from_millis;
    assert!(stats.on("nvmlDeviceGetPowerUsage", 0).time < ms(200), "{stats:?}");
    assert!(stats.on("nvmlDeviceGetPowerUsage", 1).time >= ms(200), "{stats:?}");
    assert!(stats.time_in("nvmlDeviceGetFieldValues") >= ms(20), "{stats:?}");
    assert!(stats.device(1).time >= ms(220) && stats.total().time >= stats.device(1).time);
    assert_eq!([stats.field(185, 1), stats.field(186, 1), stats.field(186, 0)], [(1, 1), (1, 0), (0, 0)]);
}

#[test]
fn published_costs_are_met_closely() {
    let nvml = Nvml::start(&Scenario::new().costs(Costs::published(CostMode::Sleep)).device(Device::a100()));
    let device = nvml.device(0);
    // The least of some calls: the machine may be busy with others.
    let least = |symbol: &str, calls: usize| {
        let time = || {
            let begun = Instant::now();
            nvml.list::<u8>(symbol, device, &mut [], 0);
            begun.elapsed()
        };
        (0..calls).map(|_| time()).min().unwrap()
    };
    for (symbol, us) in [("nvmlDeviceGetComputeRunningProcesses_v3", 200), ("nvmlDeviceGetGraphicsRunningProcesses_v3", 130)] {
        let least = least(symbol, 200);
        assert!(least >= Duration::from_micros(us) && least < Duration::from_micros(us + us / 2), "{symbol} {least:?}");
    }
}
