//! What is measured: the cases.

use std::time::Duration;

use nvml_sim::scenario::{CostMode, Costs, Device, Load, Process, ProcessUtilization, Scenario};

/// The PID of the first simulated process; the others follow. No process of the machine has them, and none needs to.
pub(crate) const FIRST_PID: u32 = 3_000_000;
const MIB: u64 = 1 << 20;

/// A bridge to be measured.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) interval: Duration,
    pub(crate) source: Source,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Mock,
    /// The mock source in a size that no flag asks for: GPUs, and processes on each.
    LargeMock(u32, u32),
    Simulated(Machine),
    /// AMD cards, and processes with so many open files each.
    Amd {
        cards: u32,
        processes: u32,
        files: u32,
    },
}

/// A simulated machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) gpus: usize,
    /// A GPU.
    pub(crate) processes: usize,
    pub(crate) calls: Calls,
    /// One GPU hangs once the bridge publishes.
    pub(crate) one_hangs: bool,
}

/// What the library's calls are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calls {
    Free,
    /// What was measured and published, asleep.
    Slept,
    /// The same, holding one lock.
    OneLock,
    /// PCIe traffic is had only by a call that blocks for 20 ms.
    SlowPcie,
}

impl Machine {
    pub(crate) fn new(gpus: usize, processes: usize, calls: Calls) -> Self {
        Self { gpus, processes, calls, one_hangs: false }
    }

    pub(crate) fn scenario(&self) -> Scenario {
        let costs = match self.calls {
            Calls::Free => Costs::default(),
            Calls::Slept => Costs::published(CostMode::Sleep),
            Calls::OneLock => Costs::published(CostMode::OneLock),
            Calls::SlowPcie => Costs::default().call("nvmlDeviceGetPcieThroughput", 20_000),
        };
        (0..self.gpus).fold(Scenario::new().costs(costs), |scenario, gpu| scenario.device(self.device(gpu)))
    }

    fn device(&self, gpu: usize) -> Device {
        let mut device = Device::h100().at_work();
        if self.calls == Calls::SlowPcie {
            let pcie = device.pcie.clone().without_counters();
            device = device.pcie(pcie);
        }
        let capacity = u32::try_from(self.processes).unwrap_or(u32::MAX).max(100);
        device = device.process_utilization(ProcessUtilization { capacity, ..ProcessUtilization::default() });
        for process in 0..self.processes {
            let pid = FIRST_PID + u32::try_from(gpu * self.processes + process).unwrap_or(0);
            let memory = (64 + process as u64) * MIB;
            let loads = [Load::new(40, 20), Load::new(60, 30), Load::new(50, 10)];
            device = device.process(Process::compute(pid, memory).sampled_every(1_000, loads.to_vec()));
        }
        device
    }
}

/// The cases of the table.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for milliseconds in [100, 10, 1] {
        let interval = Duration::from_millis(milliseconds);
        cases.push(Case { name: format!("mock {milliseconds} ms"), interval, source: Source::Mock });
    }
    cases.push(Case { name: "mock 16×64 1 ms".to_owned(), interval: Duration::from_millis(1), source: Source::LargeMock(16, 64) });
    let interval = Duration::from_millis(100);
    for (gpus, processes) in [(8, 4), (16, 64), (16, 248)] {
        for (calls, text) in [(Calls::Free, "free"), (Calls::Slept, "slept"), (Calls::OneLock, "one lock"), (Calls::SlowPcie, "PCIe 20 ms")]
        {
            cases.push(simulated(&format!("{gpus}×{processes} {text}"), interval, Machine::new(gpus, processes, calls)));
        }
    }
    cases.push(simulated("16×64 free 10 ms", Duration::from_millis(10), Machine::new(16, 64, Calls::Free)));
    let hanging = Machine { one_hangs: true, ..Machine::new(8, 4, Calls::Free) };
    cases.push(simulated("8×4 one GPU hangs", interval, hanging));
    let source = Source::Amd { cards: 4, processes: 1_000, files: 4 };
    cases.push(Case { name: "AMD, 4 cards, 1,000 processes".to_owned(), interval, source });
    cases
}

/// How the cost grows: with the processes of 16 GPUs, and with the GPUs at 64 processes each.
pub(crate) fn growth() -> (Vec<Case>, Vec<Case>) {
    let interval = Duration::from_millis(100);
    let case = |gpus, processes| simulated(&format!("{gpus}×{processes}"), interval, Machine::new(gpus, processes, Calls::Free));
    let by_processes = [(1, 1), (16, 1), (16, 4), (16, 16), (16, 64), (16, 128), (16, 248)].map(|(gpus, processes)| case(gpus, processes));
    let by_gpus = [1, 2, 4, 8, 12, 16].map(|gpus| case(gpus, 64));
    (by_processes.to_vec(), by_gpus.to_vec())
}

/// What starting and stopping is measured with.
pub(crate) fn starting() -> Vec<Case> {
    let interval = Duration::from_millis(100);
    vec![Case { name: "mock".to_owned(), interval, source: Source::Mock }, simulated("8×4 free", interval, Machine::new(8, 4, Calls::Free))]
}

fn simulated(name: &str, interval: Duration, machine: Machine) -> Case {
    Case { name: name.to_owned(), interval, source: Source::Simulated(machine) }
}
