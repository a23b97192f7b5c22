//! The messages on the pipe between sampler and publisher: a length and kind, then postcard.
//!
//! Both ends are the same binary, so there is no version to negotiate. A round is written and read piece by piece, into memory that is
//! already there.

use serde::{Deserialize, Serialize};
use telemetry::{Failures, Identity, Metrics, OpenError, Process, ProcessUtilization, Stamp};

use super::{DeviceReading, Edition, MOST_DEVICES, Opened, Round, board::Head};
use crate::SamplerError;

/// Longer messages are refused: 16 devices with 16,000 processes each fit many times.
const MAX_BYTES: usize = 64 << 20;
const HEADER_BYTES: usize = 5;

const OPENED: u8 = 1;
const OPEN_FAILED: u8 = 2;
const ROUND: u8 = 3;
const SOURCE_GONE: u8 = 4;
const IDENTIFIED: u8 = 5;

#[derive(Serialize, Deserialize)]
struct OpenFailure {
    not_available: bool,
    text: String,
}

#[derive(Serialize, Deserialize)]
struct RoundHeader {
    started_boottime_ns: u64,
    has_news: bool,
    skipped_ticks: u64,
    devices: u32,
}

#[derive(Serialize, Deserialize)]
struct DeviceHeader {
    index: u32,
    answered_boottime_ns: u64,
    read: Option<Stamp>,
    lost: bool,
    time_in_source_ns: u64,
    metrics: Metrics,
    sampled: Option<Stamp>,
    process_sample_period_ns: Option<u64>,
    /// How many follow; `None`: those of the round before.
    processes: Option<u32>,
    failures: u32,
}

/// A process, its times as differences from when its device was read: a third less to write and to read.
#[derive(Serialize, Deserialize)]
struct ProcessRow {
    pid: u32,
    mig_instance: Option<u8>,
    used_memory_bytes: Option<u64>,
    utilization: Option<UtilizationRow>,
}

#[derive(Serialize, Deserialize)]
struct UtilizationRow {
    realtime_ns: i64,
    clock_offset_ns: i64,
    sm_pct: u32,
    mem_pct: u32,
    enc_pct: u32,
    dec_pct: u32,
}

impl ProcessRow {
    fn new(process: &Process, read: Stamp) -> Self {
        let Process { pid, mig_instance, used_memory_bytes, utilization } = *process;
        let utilization = utilization.map(|ProcessUtilization { sampled, sm_pct, mem_pct, enc_pct, dec_pct }| UtilizationRow {
            realtime_ns: sampled.realtime_ns.wrapping_sub(read.realtime_ns).cast_signed(),
            clock_offset_ns: sampled.clock_offset_ns.wrapping_sub(read.clock_offset_ns),
            sm_pct,
            mem_pct,
            enc_pct,
            dec_pct,
        });
        Self { pid, mig_instance, used_memory_bytes, utilization }
    }

    fn process(self, read: Stamp) -> Process {
        let Self { pid, mig_instance, used_memory_bytes, utilization } = self;
        let utilization = utilization.map(|row| ProcessUtilization {
            sampled: Stamp {
                realtime_ns: read.realtime_ns.wrapping_add_signed(row.realtime_ns),
                clock_offset_ns: read.clock_offset_ns.wrapping_add(row.clock_offset_ns),
            },
            sm_pct: row.sm_pct,
            mem_pct: row.mem_pct,
            enc_pct: row.enc_pct,
            dec_pct: row.dec_pct,
        });
        Process { pid, mig_instance, used_memory_bytes, utilization }
    }
}

/// Writes messages into one buffer that is used again and again.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    buffer: Vec<u8>,
}

impl Encoder {
    pub(super) fn opened(&mut self, opened: &Opened) -> &[u8] {
        self.begin(OPENED);
        self.put(opened);
        self.end()
    }

    pub(super) fn open_failed(&mut self, error: &OpenError) -> &[u8] {
        self.begin(OPEN_FAILED);
        self.put(&OpenFailure { not_available: matches!(error, OpenError::NotAvailable(_)), text: error.to_string() });
        self.end()
    }

    /// A round of these readings; of each it is said whether its processes are those of the round before.
    #[expect(single_use_lifetimes, reason = "in an impl Trait it has to have a name")]
    pub(super) fn round<'a>(&mut self, head: Head, readings: impl ExactSizeIterator<Item = (&'a DeviceReading, bool)>) -> &[u8] {
        self.begin(ROUND);
        self.put(&RoundHeader {
            started_boottime_ns: head.started_boottime_ns,
            has_news: head.has_news,
            skipped_ticks: head.skipped_ticks,
            devices: readings.len() as u32,
        });
        for (device, is_same) in readings {
            self.put(&DeviceHeader {
                index: device.index,
                answered_boottime_ns: device.answered_boottime_ns,
                read: device.read,
                lost: device.lost,
                time_in_source_ns: device.time_in_source_ns,
                metrics: device.reading.metrics,
                sampled: device.reading.sampled,
                process_sample_period_ns: device.reading.process_sample_period.map(|period| period.as_nanos() as u64),
                processes: (!is_same).then_some(device.reading.processes.len() as u32),
                failures: device.reading.failures.len() as u32,
            });
            if !is_same {
                let read = device.read.unwrap_or_default();
                device.reading.processes.iter().for_each(|process| self.put(&ProcessRow::new(process, read)));
            }
            for failures in &device.reading.failures {
                self.put(&(failures.call.as_str(), failures.count));
            }
        }
        self.end()
    }

    pub(super) fn source_gone(&mut self, what: &str) -> &[u8] {
        self.begin(SOURCE_GONE);
        self.put(what);
        self.end()
    }

    pub(super) fn identified(&mut self, identity: &Identity) -> &[u8] {
        self.begin(IDENTIFIED);
        self.put(identity);
        self.end()
    }

    fn begin(&mut self, kind: u8) {
        self.buffer.clear();
        self.buffer.extend_from_slice(&[0, 0, 0, 0, kind]);
    }

    fn put<T: Serialize + ?Sized>(&mut self, value: &T) {
        // Writing our own plain types into a growing buffer has no way to fail; an empty buffer would be refused by the reader.
        self.buffer = postcard::to_extend(value, std::mem::take(&mut self.buffer)).unwrap_or_default();
    }

    fn end(&mut self) -> &[u8] {
        let body = self.buffer.len().saturating_sub(HEADER_BYTES) as u32;
        if let Some(length) = self.buffer.first_chunk_mut::<4>() {
            *length = body.to_le_bytes();
        }
        &self.buffer
    }
}

/// A message, but for rounds, which are decoded in place.
#[derive(Debug)]
pub(super) enum Message {
    Opened(Opened),
    OpenFailed(OpenError),
    Round,
    Identified(Identity),
    SourceGone(String),
}

/// How long the message at the start of `bytes` is altogether, as far as it can be told.
pub(super) fn length(bytes: &[u8]) -> Option<usize> {
    let &[a, b, c, d, _] = bytes.first_chunk::<HEADER_BYTES>()?;
    Some(HEADER_BYTES + (u32::from_le_bytes([a, b, c, d]) as usize).min(MAX_BYTES))
}

/// Decodes the message at the start of `bytes`, a round into `round`; returns it with its length, or `None` while it is incomplete.
pub(super) fn decode(bytes: &[u8], round: &mut Round) -> Result<Option<(Message, usize)>, SamplerError> {
    let Some(&[a, b, c, d, kind]) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    if length > MAX_BYTES {
        return Err(garbled("too long"));
    }
    let Some(mut body) = bytes[HEADER_BYTES..].get(..length) else { return Ok(None) };
    let message = match kind {
        OPENED => Message::Opened(take(&mut body)?),
        OPEN_FAILED => {
            let OpenFailure { not_available, text } = take(&mut body)?;
            Message::OpenFailed(if not_available { OpenError::NotAvailable(text) } else { OpenError::Failed(text) })
        }
        ROUND => {
            decode_round(&mut body, round)?;
            Message::Round
        }
        IDENTIFIED => Message::Identified(take(&mut body)?),
        SOURCE_GONE => Message::SourceGone(take(&mut body)?),
        _ => return Err(garbled("unknown kind")),
    };
    if body.is_empty() { Ok(Some((message, HEADER_BYTES + length))) } else { Err(garbled("longer than its contents")) }
}

fn decode_round(body: &mut &[u8], round: &mut Round) -> Result<(), SamplerError> {
    let header: RoundHeader = take(body)?;
    if header.devices as usize > MOST_DEVICES {
        return Err(garbled("more devices than a round can have"));
    }
    round.started_boottime_ns = header.started_boottime_ns;
    round.has_news = header.has_news;
    round.skipped_ticks = header.skipped_ticks;
    round.devices.resize_with(header.devices as usize, DeviceReading::default);
    for device in &mut round.devices {
        let header: DeviceHeader = take(body)?;
        if header.processes.is_some_and(|processes| processes as usize > body.len()) {
            return Err(garbled("more processes than bytes"));
        }
        device.index = header.index;
        device.answered_boottime_ns = header.answered_boottime_ns;
        device.read = header.read;
        device.lost = header.lost;
        device.time_in_source_ns = header.time_in_source_ns;
        device.reading.metrics = header.metrics;
        device.reading.sampled = header.sampled;
        device.reading.process_sample_period = header.process_sample_period_ns.map(std::time::Duration::from_nanos);
        if let Some(processes) = header.processes {
            let read = device.read.unwrap_or_default();
            device.edition = Some(Edition::new());
            device.reading.processes.clear();
            for _ in 0..processes {
                device.reading.processes.push(take::<ProcessRow>(body)?.process(read));
            }
        }
        let failures = &mut device.reading.failures;
        failures.truncate(header.failures as usize);
        for at in 0..header.failures as usize {
            let (call, count): (&str, u64) = take(body)?;
            if at == failures.len() {
                failures.push(Failures::default());
            }
            failures[at].call.clear();
            failures[at].call.push_str(call);
            failures[at].count = count;
        }
    }
    Ok(())
}

fn take<'a, T: Deserialize<'a>>(body: &mut &'a [u8]) -> Result<T, SamplerError> {
    let (value, rest) = postcard::take_from_bytes(body).map_err(|_| garbled("cannot be decoded"))?;
    *body = rest;
    Ok(value)
}

fn garbled(what: &'static str) -> SamplerError {
    SamplerError::Garbled { what }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use telemetry::{Identity, Reading, SourceInfo};

    use super::*;

    fn sample_round() -> Round {
        let stamp = Stamp { realtime_ns: 1_700_000_000_123_456_000, clock_offset_ns: -5 };
        let process = Process {
            pid: 4321,
            mig_instance: Some(3),
            used_memory_bytes: Some(u64::MAX - 1),
            utilization: Some(ProcessUtilization { sampled: stamp, sm_pct: 1, mem_pct: 2, enc_pct: 3, dec_pct: 4 }),
        };
        let reading = Reading {
            metrics: Metrics { sm_util_pct: Some(99), nvlink_rx_kbps: Some(7), ..Metrics::default() },
            sampled: Some(stamp),
            processes: vec![process, Process { pid: 1, ..Process::default() }],
            process_sample_period: Some(Duration::from_millis(1_003)),
            failures: [("Power", 7), ("Fan", u64::MAX)].map(|(call, count)| Failures { call: call.to_owned(), count }).to_vec(),
        };
        let device = |index, reading| DeviceReading {
            index,
            answered_boottime_ns: 55,
            read: Some(stamp),
            lost: false,
            time_in_source_ns: 9,
            reading,
            edition: None,
        };
        Round {
            started_boottime_ns: 44,
            has_news: true,
            skipped_ticks: 2,
            devices: vec![device(0, reading), device(5, Reading::default())],
        }
    }

    /// The round as it arrives: its editions are the receiver's.
    fn described(round: &Round) -> String {
        let devices = round.devices.iter().map(|device| DeviceReading { edition: None, ..device.clone() }).collect();
        format!("{:?}", Round { devices, ..*round })
    }

    fn editions(round: &Round) -> Vec<Edition> {
        round.devices.iter().map(|device| device.edition.unwrap()).collect()
    }

    /// The processes of the device at `same`, if any, are those of the round before.
    fn encode<'a>(encoder: &'a mut Encoder, round: &Round, same: Option<usize>) -> &'a [u8] {
        let Round { started_boottime_ns, has_news, skipped_ticks, .. } = *round;
        let head = Head { started_boottime_ns, has_news, skipped_ticks };
        encoder.round(head, round.devices.iter().enumerate().map(|(index, device)| (device, Some(index) == same)))
    }

    #[test]
    fn a_round_arrives_as_it_was_sent() {
        let mut encoder = Encoder::default();
        let sent = sample_round();
        let bytes = encode(&mut encoder, &sent, None).to_vec();
        let mut received = Round::default();
        let (message, length) = decode(&bytes, &mut received).unwrap().unwrap();
        assert!(matches!(message, Message::Round));
        assert_eq!(length, bytes.len());
        assert_eq!(described(&received), described(&sent));
    }

    #[test]
    fn processes_that_are_the_same_are_not_sent_again() {
        let (mut encoder, mut received) = (Encoder::default(), Round::default());
        let mut sent = sample_round();
        let whole = encode(&mut encoder, &sent, None).to_vec();
        decode(&whole, &mut received).unwrap().unwrap();
        let before = editions(&received);
        sent.devices[0].reading.metrics.sm_util_pct = Some(12);
        sent.devices[1].reading.processes.push(Process { pid: 9, ..Process::default() });
        let changed = encode(&mut encoder, &sent, Some(0)).to_vec();
        assert!(changed.len() < whole.len());
        decode(&changed, &mut received).unwrap().unwrap();
        assert_eq!(described(&received), described(&sent));
        let now = editions(&received);
        assert!(now[0] == before[0] && now[1] != before[1]);
    }

    #[test]
    fn the_other_messages_arrive_as_they_were_sent() {
        let mut encoder = Encoder::default();
        let mut round = Round::default();
        let opened = Opened {
            info: SourceInfo { name: "nvml".to_owned(), driver_version: Some("550.1".to_owned()), library: None },
            devices: vec![Identity { index: 1, name: "H200".to_owned(), ..Identity::default() }],
        };
        let Some((Message::Opened(received), _)) = decode(encoder.opened(&opened), &mut round).unwrap() else { panic!("not opened") };
        assert_eq!(received, opened);
        let failure = OpenError::NotAvailable("no library".to_owned());
        let Some((Message::OpenFailed(received), _)) = decode(encoder.open_failed(&failure), &mut round).unwrap() else { panic!("opened") };
        assert!(matches!(received, OpenError::NotAvailable(text) if text == "no library"));
        let Some((Message::SourceGone(what), _)) = decode(encoder.source_gone("unloaded"), &mut round).unwrap() else { panic!("there") };
        assert_eq!(what, "unloaded");
    }

    #[test]
    fn an_incomplete_message_is_waited_for() {
        let bytes = encode(&mut Encoder::default(), &sample_round(), None).to_vec();
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length], &mut Round::default()).unwrap().is_none(), "{length} bytes");
        }
    }

    #[test]
    fn a_round_of_more_devices_than_can_be_is_refused_before_there_is_memory_for_them() {
        let mut encoder = Encoder::default();
        encoder.begin(ROUND);
        encoder.put(&RoundHeader { started_boottime_ns: 1, has_news: true, skipped_ticks: 0, devices: 60_000_000 });
        let error = decode(encoder.end(), &mut Round::default()).unwrap_err();
        assert!(error.to_string().contains("more devices"), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            drop(decode(&bytes, &mut Round::default()));
        }

        #[test]
        fn any_well_framed_bytes_are_a_message_or_an_error(messages in prop::collection::vec((0_u8..7, prop::collection::vec(any::<u8>(), 0..200)), 1..5)) {
            // Into the same round, which keeps what the one before left.
            let mut round = Round::default();
            for (kind, body) in messages {
                let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
                bytes.push(kind);
                bytes.extend_from_slice(&body);
                if let Ok(Some((_, length))) = decode(&bytes, &mut round) {
                    prop_assert_eq!(length, bytes.len());
                }
            }
            prop_assert!(round.devices.len() <= MOST_DEVICES);
        }

        #[test]
        fn a_damaged_round_is_a_round_or_an_error(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = encode(&mut Encoder::default(), &sample_round(), None).to_vec();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            drop(decode(&bytes, &mut Round::default()));
        }
    }
}
