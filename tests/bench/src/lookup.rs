//! What a lookup costs a consumer, measured in the kernel while the bridge writes.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{OpenObject, ProgramInput, ProgramMut};
use serde::{Deserialize, Serialize};

use crate::case::{Calls, Case, FIRST_PID, Machine, Source};
use crate::cpu::AwayFromThePublisher;
use crate::skeleton::lookups::LookupsSkelBuilder;
use crate::subject::Subject;
use crate::watch::Spread;

/// Runs of a program in one call of the kernel.
const REPEAT: u32 = 20_000;
/// The kernel wants at least an Ethernet header of a packet.
const PACKET: [u8; 64] = [0; 64];
const GPUS: usize = 16;
const PROCESSES: usize = 248;

/// Nanoseconds a lookup, by what is looked up, while the bridge writes at an interval.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Lookups {
    pub(crate) poll_interval_ms: f64,
    /// What the kernel's timing itself and the choice of a PID take; it has been subtracted from the others.
    pub(crate) baseline_ns: f64,
    pub(crate) ns: BTreeMap<String, Spread>,
}

/// Measures for `duration` at each interval; `None`: nobody writes.
pub(crate) fn lookups(program: &Path, intervals: &[Duration], duration: Duration) -> Result<Vec<Lookups>> {
    intervals.iter().map(|interval| at(program, *interval, duration)).collect()
}

fn at(program: &Path, interval: Duration, duration: Duration) -> Result<Lookups> {
    let machine = Machine::new(GPUS, PROCESSES, Calls::Free);
    let case = Case { name: format!("lookups at {interval:?}"), interval, source: Source::Simulated(machine) };
    let subject = Subject::start(program, &case)?;
    thread::sleep(Duration::from_secs(1));

    let mut builder = LookupsSkelBuilder::default();
    builder.object_builder_mut().pin_root_path(subject.pin_dir()).context("no pins for the lookups' program")?;
    let mut object = MaybeUninit::<OpenObject>::uninit();
    let mut open = builder.open(&mut object).context("cannot open the lookups' program")?;
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        rodata.first_pid = FIRST_PID;
        rodata.pids = (GPUS * PROCESSES) as u32;
    }
    let skeleton = open.load().context("cannot load the lookups' program")?;
    let place = AwayFromThePublisher::go()?;
    let baseline = Spread::of(run(&skeleton.progs.baseline, duration / 4)?).median;
    let mut ns = BTreeMap::new();
    let found = |skeleton: &crate::skeleton::lookups::LookupsSkel<'_>| skeleton.maps.bss_data.as_deref().map_or(0, |bss| bss.found);
    for (name, expected) in [("hit", true), ("miss", false), ("stale gate", false)] {
        let before = found(&skeleton);
        let program = match name {
            "hit" => &skeleton.progs.hit,
            "miss" => &skeleton.progs.miss,
            _ => &skeleton.progs.stale_gate,
        };
        let costs = run(program, duration)?;
        if (found(&skeleton) > before) != expected {
            bail!("the program `{name}` did not do what it is named after");
        }
        ns.insert(name.to_owned(), Spread::of(costs.into_iter().map(|cost| (cost - baseline).max(0.0)).collect()));
    }
    drop(place);
    subject.stop()?;
    Ok(Lookups { poll_interval_ms: interval.as_secs_f64() * 1e3, baseline_ns: baseline, ns })
}

/// Nanoseconds a run, each the mean of many.
fn run(program: &ProgramMut<'_>, duration: Duration) -> Result<Vec<f64>> {
    let begun = Instant::now();
    let mut costs = Vec::new();
    while begun.elapsed() < duration {
        let input = ProgramInput { data_in: Some(&PACKET), repeat: REPEAT, ..ProgramInput::default() };
        let output = program.test_run(input).context("the kernel does not run the program for a test")?;
        costs.push(output.duration.as_nanos() as f64);
    }
    Ok(costs)
}
