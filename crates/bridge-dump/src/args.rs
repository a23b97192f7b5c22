//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use bridge_dump::{Map, Output, Request, Selection, duration};
use clap::Parser;

const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(3600);

const AFTER_HELP: &str = "\
Exit status:
  0  all four maps, or those asked for, were printed
  1  at least one was not, or the output failed
  2  wrong usage";

/// Shows the gpu_* BPF maps that gpu-ebpf-bridge publishes.
///
/// The pins are opened read-only, and a running bridge is not disturbed. A map that cannot be read is named on standard error, with the
/// reason, and the others are printed.
#[derive(Debug, Parser)]
#[command(version, args_override_self = true, after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Where the maps are pinned
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/bpf")]
    pub(crate) pin_dir: PathBuf,

    /// text (never changes), json (exact numbers, null for what is not known) or table (units, for people)
    #[arg(long, value_name = "FORM", default_value_t, conflicts_with = "watch")]
    output: Output,

    /// Print every round as it comes, JSON in one line each, until interrupted
    #[arg(long, conflicts_with = "watch")]
    pub(crate) follow: bool,

    /// A live screen, refreshed every second or as given (500ms, 2s, 1m30s)
    #[arg(long, value_name = "INTERVAL", num_args = 0..=1, require_equals = true, default_missing_value = "1s", value_parser = interval)]
    pub(crate) watch: Option<Duration>,

    /// Only these processes (host PIDs)
    #[arg(long, value_name = "PID", value_delimiter = ',', action = clap::ArgAction::Append)]
    pid: Vec<u32>,

    /// Only these devices, and processes that use one of them
    #[arg(long, value_name = "INDEX", value_delimiter = ',', action = clap::ArgAction::Append)]
    device: Vec<u32>,

    /// Only these maps, by name
    #[arg(long, value_name = "MAP", value_delimiter = ',', action = clap::ArgAction::Append, value_parser = map, conflicts_with = "watch")]
    map: Vec<Map>,
}

impl Args {
    pub(crate) fn request(&self) -> Request {
        let selection = Selection { pids: self.pid.clone(), devices: self.device.clone(), maps: self.map.clone() };
        Request { output: self.output, selection }
    }
}

fn map(name: &str) -> Result<Map, String> {
    let contract = Map::CONTRACT;
    contract.into_iter().find(|map| map.name() == name).ok_or_else(|| {
        let names: Vec<_> = contract.iter().map(|map| map.name()).collect();
        format!("no such map, there are {}", names.join(", "))
    })
}

fn interval(text: &str) -> Result<Duration, String> {
    let nanoseconds = duration::parse(text).map_err(|error| format!("{error}; an interval is a duration, as in 500ms, 2s or 1m30s"))?;
    // None that is negative is long enough.
    let interval = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0));
    if (SHORTEST..=LONGEST).contains(&interval) { Ok(interval) } else { Err("an interval is between 50ms and 1h".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(arguments: &[&str], expected: Request, watch: Option<u64>) {
        let args = Args::try_parse_from([&["bridge-dump"], arguments].concat()).unwrap();
        assert_eq!((args.request(), args.watch), (expected, watch.map(Duration::from_millis)));
    }

    #[test]
    fn flags_say_what_is_shown_and_how() {
        check(&[], Request::default(), None);
        let selection = Selection { pids: vec![1, 2, 3], devices: vec![0], maps: vec![Map::PerPid, Map::Meta] };
        let arguments = ["--output=json", "--pid", "1,2", "--pid=3", "--device", "0", "--map=gpu_per_pid,gpu_meta"];
        check(&arguments, Request { output: Output::Json, selection }, None);
        check(&["--output=json", "--output", "table"], Request { output: Output::Table, ..Request::default() }, None);
        check(&["--watch"], Request::default(), Some(1000));
        check(&["--watch=250ms"], Request::default(), Some(250));
        check(&["--watch=1.5s"], Request::default(), Some(1500));
        check(&["--watch=1m30s"], Request::default(), Some(90_000));
        check(&["--watch=1h"], Request::default(), Some(3_600_000));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let refused = [
            "--output=xml",
            "--watch=5",
            "--watch=0s",
            "--watch=1ms",
            "--watch=2h",
            "--watch=-1s",
            "--watch=9999999h",
            "--watch=s",
            "--watch=1.2.3s",
            "--pid=-1",
            "--device=x",
            "--map=gpu_bridge_state",
            "--map=",
        ];
        for argument in refused {
            assert!(Args::try_parse_from(["bridge-dump", argument]).is_err(), "{argument}");
        }
        for arguments in [["--watch", "--follow"], ["--watch", "--output=json"], ["--watch", "--map=gpu_meta"]] {
            assert!(Args::try_parse_from([&["bridge-dump"], &arguments[..]].concat()).is_err(), "{arguments:?}");
        }
    }
}
