//! PCIe traffic from amdgpu's `pcie_bw`. The kernel counts packets for a second and sleeps as long, so the file is read on a thread of the
//! card's own; the lane only looks whether an answer has come.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    sync::mpsc::TryRecvError,
    time::Duration,
};

use telemetry::{Answer, Aside, Metrics};

use crate::{
    cost::thread_time,
    parse::{number, trimmed},
};

const SECOND_NS: u64 = 1_000_000_000;
/// A fifth of the time is enough to tell a busy link from a quiet one, and leaves the counters to others for the rest.
const PERIOD_NS: u64 = 5 * SECOND_NS;
/// A read that takes longer does not return, and an answer of that age is no longer true.
const STALE_NS: u64 = 3 * PERIOD_NS;
/// How long the end waits for the thread: enough for one that has nothing to do. One that reads takes up to a second, which nobody is to wait for; it
/// holds that file and nothing else, and ends with its read.
const PATIENCE: Duration = Duration::from_millis(20);
/// No PCIe link of today carries more: generation 7, sixteen lanes.
const FASTEST_KBPS: u64 = 16_000_000 * 16;

/// One card's reader of the file.
#[derive(Debug)]
pub(crate) struct PcieBandwidth {
    path: PathBuf,
    name: String,
    worker: Option<Aside<(), Reply>>,
    asked_ns: Option<u64>,
    answered_ns: u64,
    due_ns: u64,
    time: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Traffic {
    tx_kbps: u64,
    rx_kbps: u64,
}

#[derive(Debug)]
struct Reply {
    traffic: Option<Traffic>,
    /// Processor time. The rest the kernel sleeps, with no lock held and nothing asked of the GPU, which costs nobody anything.
    cost: Duration,
}

impl PcieBandwidth {
    /// For the card number `number`, whose PCI device lies in `device`.
    pub(crate) fn new(device: &Path, number: u32) -> Self {
        Self {
            path: device.join("pcie_bw"),
            name: format!("pcie-card{number}"),
            worker: None,
            asked_ns: None,
            answered_ns: 0,
            due_ns: 0,
            time: Duration::ZERO,
        }
    }

    /// What the reads have cost, all together.
    pub(crate) const fn time(&self) -> Duration {
        self.time
    }

    /// How long until there is something to do: looking for an answer costs nothing.
    pub(crate) const fn wait(&self, now_ns: u64) -> Duration {
        if self.asked_ns.is_some() { Duration::ZERO } else { Duration::from_nanos(self.due_ns.saturating_sub(now_ns)) }
    }

    /// Takes an answer that has come, and asks anew when it is time and `may_ask`; never blocks.
    pub(crate) fn ask(&mut self, may_ask: bool, now_ns: u64, metrics: &mut Metrics) -> Answer {
        if self.worker.is_none() && !self.path.exists() {
            return Answer::NotSupported;
        }
        match self.worker.as_ref().map(Aside::reply) {
            Some(Ok(reply)) => {
                (self.asked_ns, self.answered_ns) = (None, now_ns);
                self.time += reply.cost;
                metrics.pcie_tx_kbps = reply.traffic.map(|traffic| traffic.tx_kbps);
                metrics.pcie_rx_kbps = reply.traffic.map(|traffic| traffic.rx_kbps);
            }
            Some(Err(TryRecvError::Disconnected)) => return Answer::NotSupported,
            Some(Err(TryRecvError::Empty)) | None => {}
        }
        if now_ns.saturating_sub(self.answered_ns) > STALE_NS {
            (metrics.pcie_tx_kbps, metrics.pcie_rx_kbps) = (None, None);
        }
        if may_ask && self.asked_ns.is_none() && now_ns >= self.due_ns {
            self.request(now_ns);
        }
        Answer::Answered
    }

    fn request(&mut self, now_ns: u64) {
        let path = &self.path;
        let worker = self.worker.get_or_insert_with(|| {
            let path = path.clone();
            Aside::start(&self.name, PATIENCE, move |()| answer(&path))
        });
        worker.ask(());
        self.asked_ns = Some(now_ns);
        self.due_ns = now_ns.saturating_add(PERIOD_NS);
    }
}

fn answer(path: &Path) -> Reply {
    let start = thread_time();
    let traffic = read(path);
    Reply { traffic, cost: thread_time().saturating_sub(start) }
}

fn read(path: &Path) -> Option<Traffic> {
    let mut buffer = [0; 64];
    let length = File::open(path).and_then(|mut file| file.read(&mut buffer)).ok()?;
    parse(&buffer[..length])
}

/// Packets received and sent in a second, and the largest payload of one in bytes.
fn parse(bytes: &[u8]) -> Option<Traffic> {
    let mut words = str::from_utf8(trimmed(bytes)).ok()?.split_ascii_whitespace();
    let mut next = || number::<u64>(words.next()?.as_bytes());
    let (received, sent, payload_bytes) = (next()?, next()?, next()?);
    let kbps = |packets: u64| Some(packets.checked_mul(payload_bytes)? / 1_000).filter(|kbps| *kbps <= FASTEST_KBPS);
    Some(Traffic { tx_kbps: kbps(sent)?, rx_kbps: kbps(received)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_the_largest_payload_become_kilobytes() {
        assert_eq!(parse(b"11886 2528 256\n"), Some(Traffic { rx_kbps: 3_042, tx_kbps: 647 }));
        assert_eq!(parse(b"85 0 256\n"), Some(Traffic { rx_kbps: 21, tx_kbps: 0 }));
    }

    #[test]
    fn what_no_link_carries_and_what_is_no_answer_is_absent() {
        for text in ["", "\n", "1 2", "1 2 x", "-1 2 256", "18446744073709551615 1 256", "2000000000 1 4096"] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
    }
}
