//! NVLink traffic: cumulative counters of all links together, or of each.

use telemetry::{Answer, DeviceError, Metrics, Now};

use super::calls::{Call, Calls, Outcome};
use crate::{
    pure::{
        counter::{Change, Count, Counter, Scale},
        link::nvlink_scale,
    },
    sys::{Code, Field, Gpu},
};

/// `NVML_FI_DEV_NVLINK_LINK_COUNT`
const LINK_COUNT: u32 = 91;
/// `NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX` and `_RX`, in KiB.
const DATA_KIB: Fields = Fields { tx: 138, rx: 139, unit_bytes: 1024 };
/// `NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES` and `_RCV_BYTES`, of NVLink 5.
const BYTES: Fields = Fields { tx: 202, rx: 204, unit_bytes: 1 };
/// The scope that stands for all links together.
const ALL_LINKS: u32 = u32::MAX;
/// Links that were down are asked for again this often: each costs as much as one that is up, or more.
const ALL_AGAIN_NS: u64 = 60_000_000_000;
/// More links than NVML 13.5 knows.
const MOST_LINKS: u32 = 64;

#[derive(Clone, Copy, Debug)]
struct Fields {
    tx: u32,
    rx: u32,
    unit_bytes: u64,
}

/// How this device's links are read.
#[derive(Debug)]
pub(crate) enum NvLink {
    /// Not asked yet.
    Unknown,
    /// There are none, or none that tells.
    Absent,
    Counted(Links),
}

/// The counters that are read, all in one call.
#[derive(Debug)]
pub(crate) struct Links {
    call: Call,
    fields: Fields,
    counters: Vec<LinkCounters>,
    /// What was asked for at first, of which some may have been down.
    scopes: Vec<u32>,
    all_again_ns: u64,
}

#[derive(Debug)]
struct LinkCounters {
    scope: u32,
    tx: Counter,
    rx: Counter,
}

/// A link's scope, and what both of its counters stand at.
type LinkCounts = (u32, Count, Count);

impl NvLink {
    /// `asked` is room for the fields.
    pub(crate) fn ask(
        &mut self,
        calls: &mut Calls,
        now: Now,
        metrics: &mut Metrics,
        asked: &mut Vec<Field>,
    ) -> Result<Answer, DeviceError> {
        if let Self::Unknown = self {
            *self = discover(calls, now, asked)?;
        }
        match self {
            // The device did not answer; it is asked again.
            Self::Unknown => Ok(Answer::Answered),
            Self::Absent => Ok(Answer::NotSupported),
            Self::Counted(links) => links.ask(calls, now, metrics, asked),
        }
    }
}

/// Finds the fields that this device answers: all links together, else each link's, else each link's of NVLink 5.
fn discover(calls: &mut Calls, now: Now, asked: &mut Vec<Field>) -> Result<NvLink, DeviceError> {
    match calls.ask(Call::NvLinkAll, |gpu| read(gpu, DATA_KIB, [ALL_LINKS].into_iter(), asked))? {
        Outcome::Value(()) => return Ok(NvLink::Counted(Links::new(Call::NvLinkAll, DATA_KIB, asked, vec![ALL_LINKS], now))),
        Outcome::Failed(_) => return Ok(NvLink::Unknown),
        Outcome::Never => {}
    }
    let links = match calls.ask(Call::NvLinkCount, link_count)? {
        Outcome::Value(links) => links,
        Outcome::Failed(_) => return Ok(NvLink::Unknown),
        Outcome::Never => 0,
    };
    let scopes: Vec<_> = (0..links.min(MOST_LINKS)).collect();
    if scopes.is_empty() {
        return Ok(NvLink::Absent);
    }
    for (call, fields) in [(Call::NvLinkEach, DATA_KIB), (Call::NvLink5, BYTES)] {
        match calls.ask(call, |gpu| read(gpu, fields, scopes.iter().copied(), asked))? {
            Outcome::Value(()) => return Ok(NvLink::Counted(Links::new(call, fields, asked, scopes, now))),
            Outcome::Failed(_) => return Ok(NvLink::Unknown),
            Outcome::Never => {}
        }
    }
    Ok(NvLink::Absent)
}

impl Links {
    /// Starts from a first reading.
    fn new(call: Call, fields: Fields, read: &[Field], scopes: Vec<u32>, now: Now) -> Self {
        let mut links = Self { call, fields, counters: Vec::new(), scopes, all_again_ns: now.boottime_ns.saturating_add(ALL_AGAIN_NS) };
        counts(read).for_each(|count| links.begin(count, now));
        links
    }

    /// A link that is up for the first time: it has a rate from the next reading on.
    fn begin(&mut self, (scope, tx, rx): LinkCounts, now: Now) {
        let mut counters = LinkCounters { scope, tx: Counter::default(), rx: Counter::default() };
        counters.tx.advance(tx, now.boottime_ns, self.scale());
        counters.rx.advance(rx, now.boottime_ns, self.scale());
        self.counters.push(counters);
    }

    const fn scale(&self) -> Scale {
        nvlink_scale(self.fields.unit_bytes)
    }

    fn ask(&mut self, calls: &mut Calls, now: Now, metrics: &mut Metrics, asked: &mut Vec<Field>) -> Result<Answer, DeviceError> {
        let is_all = self.counters.len() < self.scopes.len() && now.boottime_ns >= self.all_again_ns;
        let Self { fields, counters, scopes, .. } = self;
        let outcome = calls.ask(self.call, |gpu| match is_all {
            true => read(gpu, *fields, scopes.iter().copied(), asked),
            false => read(gpu, *fields, counters.iter().map(|link| link.scope), asked),
        })?;
        if outcome != Outcome::Value(()) {
            (metrics.nvlink_tx_kbps, metrics.nvlink_rx_kbps) = (None, None);
            return Ok(if outcome.is_never() { Answer::NotSupported } else { Answer::Answered });
        }
        let scale = self.scale();
        let (mut tx, mut rx) = (Sum::default(), Sum::default());
        for link in &mut self.counters {
            match counts(asked).find(|(scope, ..)| *scope == link.scope) {
                Some((_, sent, received)) => {
                    tx.add(link.tx.advance(sent, now.boottime_ns, scale));
                    rx.add(link.rx.advance(received, now.boottime_ns, scale));
                }
                // A link that went down carries nothing; when it is back, it starts anew.
                None => {
                    link.tx.forget();
                    link.rx.forget();
                }
            }
        }
        if is_all {
            self.all_again_ns = now.boottime_ns.saturating_add(ALL_AGAIN_NS);
            for count in counts(asked) {
                if self.counters.iter().all(|link| link.scope != count.0) {
                    self.begin(count, now);
                }
            }
        }
        tx.write(scale, &mut metrics.nvlink_tx_kbps);
        rx.write(scale, &mut metrics.nvlink_rx_kbps);
        Ok(Answer::Answered)
    }
}

/// The rates of several links.
#[derive(Debug, Default)]
struct Sum {
    kbps: u64,
    /// It is too soon: what was said before stands.
    stands: bool,
    unknown: bool,
}

impl Sum {
    fn add(&mut self, change: Change) {
        match change {
            Change::Rate(kbps) => self.kbps = self.kbps.saturating_add(kbps),
            // A link that came up adds its rate from the next reading on.
            Change::First => {}
            Change::TooSoon => self.stands = true,
            Change::Reset | Change::Ambiguous | Change::TooFast => self.unknown = true,
        }
    }

    fn write(&self, scale: Scale, metric: &mut Option<u64>) {
        if self.unknown || self.kbps > scale.limit_kbps {
            *metric = None;
        } else if !self.stands {
            *metric = Some(self.kbps);
        }
    }
}

/// Reads both counters of each scope into `asked`; an error when none has both.
fn read(gpu: &Gpu, of: Fields, scopes: impl Iterator<Item = u32>, asked: &mut Vec<Field>) -> Result<(), Code> {
    asked.clear();
    asked.extend(scopes.flat_map(|scope| [Field::new(of.tx, scope), Field::new(of.rx, scope)]));
    gpu.fields(asked)?;
    if counts(asked).next().is_none() { Err(reason(asked)) } else { Ok(()) }
}

/// The counters of those scopes that have both.
fn counts(read: &[Field]) -> impl Iterator<Item = LinkCounts> + '_ {
    let (pairs, _) = read.as_chunks::<2>();
    pairs.iter().filter_map(|[tx, rx]| Some((tx.scope(), tx.answer().ok()??, rx.answer().ok()??)))
}

/// Why no field had a count.
fn reason(fields: &[Field]) -> Code {
    match fields.iter().find_map(|field| field.answer().err()) {
        // How drivers call a field's number that they do not know, and a link that is not there.
        Some(Code::INVALID_ARGUMENT | Code::NOT_FOUND) | None => Code::NOT_SUPPORTED,
        Some(code) => code,
    }
}

fn link_count(gpu: &Gpu) -> Result<u32, Code> {
    let mut fields = [Field::new(LINK_COUNT, 0)];
    gpu.fields(&mut fields)?;
    match fields[0].answer() {
        Ok(count) => Ok(count.map_or(0, |count| u32::try_from(count.value).unwrap_or(0))),
        Err(Code::INVALID_ARGUMENT) => Err(Code::NOT_SUPPORTED),
        Err(code) => Err(code),
    }
}
