//! PCIe traffic from `nvmlDeviceGetPcieThroughput`, for drivers without byte counters. The call samples for 20 ms and blocks as long, so it
//! is made on a thread of its own, one direction at a time, as often as its cost allows.

use std::{
    sync::mpsc::TryRecvError,
    time::{Duration, Instant},
};

use telemetry::{Answer, Aside, DeviceError, Metrics, Now};

use super::{
    calls::{Call, Calls},
    turnstile::{Pass, Turnstile},
};
use crate::sys::{Code, Direction, Gpu};

/// The part of time that may be spent in this call: 0.4 %, so that 21 ms are asked for every 5.25 s.
const COST_TO_PERIOD: u32 = 250;
/// The call may cost less than it is said to, and its figure is not better for being asked more often.
const SHORTEST_PERIOD: Duration = Duration::from_secs(1);
/// A call that takes longer does not return: what it said last is no longer true.
const STUCK_NS: u64 = 5_000_000_000;
/// How long the end waits for a call that is under way: twice what one takes, and short beside one that never returns. A thread in such a call keeps the
/// library, which then cannot be shut down anyway.
const PATIENCE: Duration = Duration::from_millis(50);

type Request = (Gpu, Direction, Pass);
type Reply = (Result<u32, Code>, Duration);

/// What is remembered of the call's answers.
#[derive(Debug)]
pub(crate) struct Throughput {
    index: u32,
    /// One GPU of all makes this call at a time.
    turnstile: Turnstile,
    worker: Option<Aside<Request, Reply>>,
    next: Direction,
    in_flight: Option<(Direction, u64)>,
    due_ns: u64,
    wait: Duration,
    /// Neither direction has been asked for yet: the second follows the first at once.
    is_first: bool,
    /// What the last call took.
    last_cost: Duration,
    time: Duration,
}

impl Throughput {
    pub(crate) const fn new(index: u32, turnstile: Turnstile) -> Self {
        Self {
            index,
            turnstile,
            worker: None,
            next: Direction::Tx,
            in_flight: None,
            due_ns: 0,
            wait: Duration::ZERO,
            is_first: true,
            last_cost: Duration::MAX,
            time: Duration::ZERO,
        }
    }

    /// How long these calls have taken, all together.
    pub(crate) const fn time(&self) -> Duration {
        self.time
    }

    pub(crate) const fn wait(&self) -> Duration {
        self.wait
    }

    /// Takes the answer that has come and makes the next request that is due; never blocks.
    pub(crate) fn ask(&mut self, calls: &mut Calls, limit_kbps: u64, now: Now, metrics: &mut Metrics) -> Result<Answer, DeviceError> {
        if let Some((direction, asked_ns)) = self.in_flight {
            match self.reply() {
                Err(TryRecvError::Empty) => {
                    if now.boottime_ns.saturating_sub(asked_ns) > STUCK_NS {
                        (metrics.pcie_tx_kbps, metrics.pcie_rx_kbps) = (None, None);
                    }
                    return Ok(Answer::Answered);
                }
                Err(TryRecvError::Disconnected) => {
                    (metrics.pcie_tx_kbps, metrics.pcie_rx_kbps) = (None, None);
                    return Ok(Answer::NotSupported);
                }
                Ok((result, cost)) => {
                    self.finish(asked_ns, cost);
                    let kbps = calls.settle(call_of(direction), result)?;
                    *metric_of(direction, metrics) = kbps.value().map(u64::from).filter(|kbps| *kbps <= limit_kbps);
                }
            }
        }
        if calls.is_never(Call::PcieThroughputTx) && calls.is_never(Call::PcieThroughputRx) {
            return Ok(Answer::NotSupported);
        }
        if now.boottime_ns >= self.due_ns
            && let Some(pass) = self.turnstile.try_pass()
        {
            self.request(calls, now, pass);
        }
        // An answer is looked for at every opportunity; that costs nothing.
        let until_due = Duration::from_nanos(self.due_ns.saturating_sub(now.boottime_ns));
        self.wait = if self.in_flight.is_some() { Duration::ZERO } else { until_due };
        Ok(Answer::Answered)
    }

    fn reply(&self) -> Result<Reply, TryRecvError> {
        self.worker.as_ref().map_or(Err(TryRecvError::Disconnected), Aside::reply)
    }

    fn finish(&mut self, asked_ns: u64, cost: Duration) {
        self.in_flight = None;
        self.time += cost;
        // The smaller of two: a thread that was preempted once is no dear call.
        let usual = cost.min(self.last_cost);
        self.last_cost = cost;
        let period = if self.is_first { Duration::ZERO } else { usual.saturating_mul(COST_TO_PERIOD).max(SHORTEST_PERIOD) };
        self.is_first = false;
        self.due_ns = asked_ns.saturating_add(u64::try_from(period.as_nanos()).unwrap_or(u64::MAX));
    }

    fn request(&mut self, calls: &Calls, now: Now, pass: Pass) {
        let mut direction = self.next;
        if calls.is_never(call_of(direction)) {
            direction = opposite(direction);
        }
        self.next = opposite(direction);
        let index = self.index;
        let worker = self.worker.get_or_insert_with(|| Aside::start(&format!("pcie-{index}"), PATIENCE, call));
        worker.ask((calls.gpu().clone(), direction, pass));
        self.in_flight = Some((direction, now.boottime_ns));
    }
}

/// The library and the pass are let go of before anybody can learn that the call is over.
fn call((gpu, direction, _turn): Request) -> Reply {
    let start = Instant::now();
    let result = gpu.pcie_throughput(direction);
    (result, start.elapsed())
}

const fn opposite(direction: Direction) -> Direction {
    match direction {
        Direction::Tx => Direction::Rx,
        Direction::Rx => Direction::Tx,
    }
}

const fn call_of(direction: Direction) -> Call {
    match direction {
        Direction::Tx => Call::PcieThroughputTx,
        Direction::Rx => Call::PcieThroughputRx,
    }
}

fn metric_of(direction: Direction, metrics: &mut Metrics) -> &mut Option<u64> {
    match direction {
        Direction::Tx => &mut metrics.pcie_tx_kbps,
        Direction::Rx => &mut metrics.pcie_rx_kbps,
    }
}
