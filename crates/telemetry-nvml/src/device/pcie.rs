//! PCIe traffic from the byte counters of driver 555 and later.

use log::debug;
use telemetry::{Answer, DeviceError, Metrics, Now};

use super::calls::{Call, Calls, Outcome};
use crate::{
    pure::{
        counter::{Change, Count, Counter, Scale, Width},
        link::pcie_scale,
    },
    sys::{Code, Field, Gpu},
};

/// The counters run on at any time; but a reading costs 0.2–0.4 ms, and a rate over half a second says enough.
pub(crate) const PERIOD_MS: u64 = 500;

/// `NVML_FI_DEV_PCIE_COUNT_TX_BYTES`
const TX_BYTES: u32 = 197;
/// `NVML_FI_DEV_PCIE_COUNT_RX_BYTES`
const RX_BYTES: u32 = 198;
/// So many readings in a row that give no rate, and the counters are given up.
const STRIKES: u32 = 3;

/// What is remembered of the byte counters.
#[derive(Debug)]
pub(crate) struct Pcie {
    scale: Scale,
    tx: Counter,
    rx: Counter,
    strikes: u32,
    given_up: bool,
}

impl Pcie {
    /// Asks once what the link can carry.
    pub(crate) fn new(gpu: &Gpu) -> Self {
        let (generation, lanes) = gpu.pcie_link();
        let scale = pcie_scale(generation.unwrap_or(0), lanes.unwrap_or(0));
        Self { scale, tx: Counter::default(), rx: Counter::default(), strikes: 0, given_up: false }
    }

    /// Whether the counters give rates, as far as is known.
    pub(crate) const fn counters_may_serve(&self) -> bool {
        !self.given_up
    }

    /// The most that the link carries, in kB/s.
    pub(crate) const fn limit_kbps(&self) -> u64 {
        self.scale.limit_kbps
    }

    pub(crate) fn ask(&mut self, calls: &mut Calls, now: Now, metrics: &mut Metrics) -> Result<Answer, DeviceError> {
        if self.given_up {
            return Ok(Answer::NotSupported);
        }
        let (tx, rx) = match calls.ask(Call::PcieCounters, read)? {
            Outcome::Value(counts) => counts,
            Outcome::Failed(_) => {
                // The counters stand where they were; the next reading gives the rate over the whole time.
                (metrics.pcie_tx_kbps, metrics.pcie_rx_kbps) = (None, None);
                return Ok(Answer::Answered);
            }
            Outcome::Never => return Ok(self.give_up("the driver has none", metrics)),
        };
        if self.wraps_too_soon(tx) || self.wraps_too_soon(rx) {
            return Ok(self.give_up("they wrap too soon for this link", metrics));
        }
        let tx = step(&mut self.tx, tx, now, self.scale, &mut metrics.pcie_tx_kbps);
        let rx = step(&mut self.rx, rx, now, self.scale, &mut metrics.pcie_rx_kbps);
        self.strikes = if tx && rx { 0 } else { self.strikes + 1 };
        if self.strikes >= STRIKES {
            return Ok(self.give_up("their readings make no sense on this link", metrics));
        }
        Ok(Answer::Answered)
    }

    /// Whether a counter may wrap within the period at which it is asked, with a margin for being asked late.
    fn wraps_too_soon(&self, count: Option<Count>) -> bool {
        let bytes_in_two_periods = u128::from(self.scale.limit_kbps) * u128::from(PERIOD_MS * 2);
        match count.map(|count| count.width) {
            Some(Width::Bits64) | None => false,
            Some(Width::Bits32) => !self.scale.limit_known || bytes_in_two_periods >= 1 << 32,
            Some(Width::Bits16) => true,
        }
    }

    fn give_up(&mut self, why: &str, metrics: &mut Metrics) -> Answer {
        debug!("PCIe byte counters are not used: {why}");
        self.given_up = true;
        metrics.pcie_tx_kbps = None;
        metrics.pcie_rx_kbps = None;
        Answer::NotSupported
    }
}

/// Takes a reading into its metric; whether it made sense.
fn step(counter: &mut Counter, count: Option<Count>, now: Now, scale: Scale, metric: &mut Option<u64>) -> bool {
    let Some(count) = count else {
        *metric = None;
        counter.forget();
        return false;
    };
    match counter.advance(count, now.boottime_ns, scale) {
        Change::First | Change::TooSoon => true,
        Change::Rate(kbps) => {
            *metric = Some(kbps);
            true
        }
        Change::Reset => {
            *metric = None;
            true
        }
        Change::Ambiguous | Change::TooFast => {
            *metric = None;
            false
        }
    }
}

fn read(gpu: &Gpu) -> Result<(Option<Count>, Option<Count>), Code> {
    let mut fields = [Field::new(TX_BYTES, 0), Field::new(RX_BYTES, 0)];
    gpu.fields(&mut fields)?;
    let [tx, rx] = fields.map(|field| field.answer());
    match (tx, rx) {
        // A driver that does not know a field's number may call it an invalid argument.
        (Err(Code::INVALID_ARGUMENT), Err(_)) => Err(Code::NOT_SUPPORTED),
        (Err(code), Err(_)) => Err(code),
        (tx, rx) => Ok((tx.ok().flatten(), rx.ok().flatten())),
    }
}
