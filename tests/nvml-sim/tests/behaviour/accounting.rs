//! Who has called is known.

use std::time::Duration;

use nvml_sim::{
    abi,
    scenario::{CostMode, Costs, Device, Scenario},
};

use crate::nvml::Nvml;

#[test]
fn calls_are_counted_by_symbol_and_device() {
    let nvml = Nvml::start(&Scenario::new().devices(3, Device::a100()));
    let device = nvml.device(2);
    for _ in 0..5 {
        nvml.power(device).unwrap();
    }
    let stats = nvml.installed.stats().unwrap();
    assert_eq!(stats.calls("nvmlInit_v2"), 1);
    assert_eq!(stats.on("nvmlDeviceGetHandleByIndex_v2", 2).calls, 1);
    assert_eq!([0, 1, 2].map(|index| stats.on("nvmlDeviceGetPowerUsage", index).calls), [0, 0, 5]);
    assert_eq!(stats.total().calls, 7);
    let called: Vec<_> = stats.called().map(|(symbol, count)| (symbol, count.calls)).collect();
    assert_eq!(called, [("nvmlInit_v2", 1), ("nvmlDeviceGetHandleByIndex_v2", 1), ("nvmlDeviceGetPowerUsage", 5)]);
    assert_eq!((stats.loads(), stats.last_pid()), (1, std::process::id()));
}

#[test]
fn the_nominal_cost_is_what_the_scenario_says_of_each_call_and_field() {
    let board = Device::a100().costs("nvmlDeviceGetPowerUsage", 50);
    let scenario = Scenario::new().device(board).device(Device::t4()).costs(Costs::published(CostMode::Sleep));
    let nvml = Nvml::start(&scenario);
    let [a100, t4] = [0, 1].map(|index| nvml.device(index));
    let opened = nvml.installed.stats().unwrap();
    for _ in 0..3 {
        nvml.power(a100).unwrap();
    }
    nvml.power(t4).unwrap();
    for device in [a100, t4] {
        // The T4 has no such counter. The call itself costs 1 µs.
        assert_eq!(nvml.field(device, abi::NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0).is_ok(), device == a100);
    }
    let stats = nvml.installed.stats().unwrap().since(&opened);
    assert_eq!([0, 1].map(|device| stats.nominal(&scenario, device)), [3 * 50 + 1 + 300, 1 + 1 + 1_200].map(Duration::from_micros));
}
