//! A scenario made ready for use: names of calls resolved, counts of faults, counters that begin now.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::{
    clock,
    scenario::{Answer, Costs, Counter, Device, Effect, Fault, Scenario},
    symbols::{Symbol, matching},
};

/// A scenario in use.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The scenario without its devices.
    pub(crate) scenario: Scenario,
    pub(crate) gpus: Vec<Gpu>,
    faults: Vec<Rule>,
    costs_us: Vec<u64>,
    missing: Vec<bool>,
    /// Which reading of the file this is; 0: none could be read yet.
    pub(crate) generation: u64,
}

/// A device in use.
#[derive(Debug)]
pub(crate) struct Gpu {
    pub(crate) device: Device,
    faults: Vec<Rule>,
    costs_us: Vec<u64>,
    /// Calls that were told that a list has grown, by symbol.
    grown: Vec<AtomicU64>,
}

#[derive(Debug)]
struct Rule {
    fault: Fault,
    concerns: Vec<bool>,
    hits: AtomicU64,
}

impl Loaded {
    pub(crate) fn new(mut scenario: Scenario, generation: u64) -> Self {
        let devices = std::mem::take(&mut scenario.devices);
        Self {
            gpus: devices.into_iter().map(|device| Gpu::new(device, &scenario.costs)).collect(),
            faults: rules(&scenario.faults),
            costs_us: by_symbol(|symbol| scenario.costs.of_call(symbol, &BTreeMap::new())),
            missing: by_symbol(|symbol| scenario.missing.iter().any(|missing| matching(missing, symbol))),
            scenario,
            generation,
        }
    }

    pub(crate) fn is_missing(&self, symbol: Symbol) -> bool {
        self.missing[symbol as usize]
    }

    /// What goes wrong with this call, the device's own faults first.
    pub(crate) fn effect(&self, symbol: Symbol, gpu: Option<&Gpu>) -> Option<Effect> {
        let own = gpu.map_or(&[][..], |gpu| &gpu.faults);
        own.iter().chain(&self.faults).find_map(|rule| rule.hit(symbol))
    }

    pub(crate) fn cost_us(&self, symbol: Symbol, gpu: Option<&Gpu>) -> u64 {
        gpu.map_or(&self.costs_us, |gpu| &gpu.costs_us)[symbol as usize]
    }
}

impl Gpu {
    fn new(mut device: Device, costs: &Costs) -> Self {
        begin_counters(&mut device);
        Self {
            faults: rules(&device.faults),
            costs_us: by_symbol(|symbol| costs.of_call(symbol, &device.costs)),
            grown: by_symbol(|_| AtomicU64::new(0)),
            device,
        }
    }

    /// Whether this call, which would succeed, finds a list that has grown. Counts it.
    pub(crate) fn grows(&self, symbol: Symbol, times: u64) -> bool {
        times > 0 && self.grown[symbol as usize].fetch_add(1, Relaxed) < times
    }
}

impl Rule {
    fn hit(&self, symbol: Symbol) -> Option<Effect> {
        if !self.concerns[symbol as usize] || !self.fault.in_force(clock::boottime_ns()) {
            return None;
        }
        let hit = self.hits.fetch_add(1, Relaxed).checked_sub(self.fault.after_calls)?;
        self.fault.times.is_none_or(|times| hit < times).then_some(self.fault.effect)
    }
}

fn rules(faults: &[Fault]) -> Vec<Rule> {
    let rule =
        |fault: &Fault| Rule { concerns: by_symbol(|symbol| matching(&fault.call, symbol)), fault: fault.clone(), hits: AtomicU64::new(0) };
    faults.iter().map(rule).collect()
}

fn by_symbol<T>(value: impl FnMut(Symbol) -> T) -> Vec<T> {
    Symbol::ALL.iter().copied().map(value).collect()
}

/// Counters without a start begin at this reading.
fn begin_counters(device: &mut Device) {
    let now = clock::boottime_ns();
    let begin = |counter: &mut Counter| {
        counter.since_ns.get_or_insert(now);
    };
    for counter in [&mut device.pcie.tx_bytes, &mut device.pcie.rx_bytes] {
        if let Answer::Value(counter) = counter {
            begin(counter);
        }
    }
    if let Answer::Value(nvlinks) = &mut device.nvlinks {
        for link in &mut nvlinks.links {
            begin(&mut link.tx);
            begin(&mut link.rx);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Gpu, Loaded};
    use crate::{
        scenario::{Code, CostMode, Costs, Device, Effect, Fault, Scenario},
        symbols::Symbol,
    };

    const NAME: Symbol = Symbol::nvmlDeviceGetName;
    const POWER: Symbol = Symbol::nvmlDeviceGetPowerUsage;

    fn effects(loaded: &Loaded, symbol: Symbol, gpu: Option<&Gpu>, calls: usize) -> Vec<Option<Effect>> {
        (0..calls).map(|_| loaded.effect(symbol, gpu)).collect()
    }

    #[test]
    fn a_fault_waits_for_its_calls_and_ends_after_its_times() {
        let fault = Fault::crash("nvmlDeviceGetName").after_calls(2).times(1);
        let loaded = Loaded::new(Scenario::new().fault(fault), 1);
        assert_eq!(effects(&loaded, NAME, None, 4), [None, None, Some(Effect::Crash), None]);
        assert_eq!(effects(&loaded, POWER, None, 3), [None; 3]);
    }

    #[test]
    fn a_devices_own_fault_goes_before_the_scenarios() {
        let device = Device::a100().lost(Code::GPU_IS_LOST);
        let loaded = Loaded::new(Scenario::new().device(device).device(Device::t4()).fails("*", Code::UNKNOWN), 1);
        assert_eq!(loaded.effect(NAME, loaded.gpus.first()), Some(Effect::Return(Code::GPU_IS_LOST)));
        assert_eq!(loaded.effect(NAME, loaded.gpus.get(1)), Some(Effect::Return(Code::UNKNOWN)));
        assert_eq!(loaded.effect(Symbol::nvmlShutdown, None), Some(Effect::Return(Code::UNKNOWN)));
    }

    #[test]
    fn a_fault_keeps_to_its_time() {
        let hour = Duration::from_secs(3_600);
        let scenario = Scenario::new().fault(Fault::crash("*").starting_in(hour)).fault(Fault::hang("*").ending_in(hour));
        assert!(matches!(Loaded::new(scenario, 1).effect(NAME, None), Some(Effect::Hang { .. })));
    }

    #[test]
    fn costs_are_found_by_name_then_longest_pattern_then_default() {
        let costs = Costs::published(CostMode::Sleep).call("nvmlDevice*", 7);
        let device = Device::a100().costs("nvmlDeviceGetPower*", 9);
        let loaded = Loaded::new(Scenario::new().costs(costs).device(device), 1);
        let gpu = loaded.gpus.first();
        assert_eq!(loaded.cost_us(Symbol::nvmlDeviceGetPcieThroughput, gpu), 21_000);
        assert_eq!(loaded.cost_us(Symbol::nvmlDeviceGetFanSpeed_v2, gpu), 400);
        assert_eq!(loaded.cost_us(NAME, gpu), 7);
        assert_eq!(loaded.cost_us(POWER, gpu), 9);
        assert_eq!(loaded.cost_us(POWER, None), 7);
        assert_eq!(loaded.cost_us(Symbol::nvmlShutdown, None), 1);
    }

    #[test]
    fn a_list_grows_as_often_as_it_is_said_to() {
        let loaded = Loaded::new(Scenario::new().device(Device::a100()), 1);
        assert_eq!([2, 2, 2].map(|times| loaded.gpus[0].grows(NAME, times)), [true, true, false]);
        assert!(!loaded.gpus[0].grows(POWER, 0));
    }
}
