//! Who has called is known.

use nvml_sim::scenario::{Device, Scenario};

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
