//! Every word that a bridge can say of itself, fresh and stale, alive and dead.

use super::*;

const MS: Duration = Duration::from_millis(1);
const FRESH: Freshness = Freshness::Fresh { age: Duration::from_millis(43) };
const STALE: Freshness = Freshness::Stale { age: Duration::from_millis(1_500) };

fn facts(freshness: Freshness, phase: Phase) -> Facts {
    let state = State { phase, source: Source::Real, helper_pid: 7, started_boottime_ns: 5, silent: 1_000 * MS, lost: 0, late: 0 };
    Facts { devices: 2, helper_pid: 7, freshness, max_age: 1_000 * MS, state: Some(state) }
}

fn from(source: Source) -> Facts {
    let mut facts = facts(FRESH, Phase::Publishing);
    facts.state.as_mut().unwrap().source = source;
    facts
}

#[track_caller]
fn check(facts: &Facts, process: Process, line: &str, status: i32) {
    let verdict = facts.judge(|pid, _| {
        assert_eq!(pid, 7);
        process
    });
    assert_eq!((verdict.to_string().as_str(), verdict.exit_status()), (line, status), "{facts:?} {process:?}");
}

#[test]
fn a_fresh_round_is_healthy() {
    check(&facts(FRESH, Phase::Publishing), Process::Living, "publishing: 2 devices, the newest round is 43 ms old, helper_pid 7", 0);
    // Between withdrawing one source and the first round of another.
    check(&facts(FRESH, Phase::Starting), Process::Living, "publishing: 2 devices, the newest round is 43 ms old, helper_pid 7", 0);
    let one_lost = Facts { devices: 1, ..facts(FRESH, Phase::Publishing) };
    let state = one_lost.state.clone().map(|state| State { lost: 1, late: 3, ..state });
    let one_lost = Facts { state, ..one_lost };
    check(&one_lost, Process::Living, "publishing: 1 device (1 lost) (3 late), the newest round is 43 ms old, helper_pid 7", 0);
}

#[test]
fn invented_data_is_called_so() {
    let line = "publishing: 2 devices, the newest round is 43 ms old, helper_pid 7; THE DATA IS INVENTED by the mock source";
    check(&from(Source::Mock), Process::Living, line, 0);
    check(&from(Source::MockFallback), Process::Living, &format!("{line}, since the real one cannot be opened"), 0);
}

#[test]
fn old_rounds_are_stale_and_the_process_says_why() {
    let stale = facts(STALE, Phase::Publishing);
    let line = "stale: the newest round is 1500 ms old, more than 1000 ms";
    check(&stale, Process::Living, line, 3);
    check(&stale, Process::Stopped, &format!("{line}; the bridge, process 7, is suspended"), 3);
    check(&stale, Process::Gone, &format!("{line}; the bridge, process 7, is gone"), 3);
    check(&facts(Freshness::NeverPublished, Phase::Starting), Process::Living, "stale: nothing was published yet", 3);
}

#[test]
fn waiting_and_stopped_bridges_are_unhealthy_at_once() {
    check(&facts(FRESH, Phase::Waiting), Process::Living, "stale: waiting for the driver; the newest round is 43 ms old", 3);
    let never = facts(Freshness::NeverPublished, Phase::Waiting);
    check(&never, Process::Gone, "stale: waiting for the driver; nothing was published yet; the bridge, process 7, is gone", 3);
    check(&facts(FRESH, Phase::Stopping), Process::Gone, "stale: the bridge has stopped; the newest round is 43 ms old", 3);
}

#[test]
fn an_idle_bridge_is_healthy_while_it_lives() {
    for freshness in [Freshness::NeverPublished, STALE, FRESH] {
        let idle = facts(freshness, Phase::Idle);
        check(&idle, Process::Living, "idle: no GPU, by design; helper_pid 7", 0);
        check(&idle, Process::Stopped, "stale: it had no GPU, and the bridge, process 7, is suspended", 3);
        check(&idle, Process::Gone, "stale: it had no GPU, and the bridge, process 7, is gone", 3);
    }
}

#[test]
fn a_loop_that_hangs_is_told_even_where_nothing_is_to_be_published() {
    let hanging = |phase| {
        let facts = facts(STALE, phase);
        let state = facts.state.clone().map(|state| State { silent: 11_000 * MS, ..state });
        Facts { state, ..facts }
    };
    let line = "the bridge, process 7, lives and hangs: its loop has not gone round for 11 s";
    check(&hanging(Phase::Idle), Process::Living, &format!("stale: it had no GPU, and {line}"), 3);
    let stale = "stale: the newest round is 1500 ms old, more than 1000 ms";
    check(&hanging(Phase::Publishing), Process::Living, &format!("{stale}; {line}"), 3);
    check(&hanging(Phase::Idle), Process::Gone, "stale: it had no GPU, and the bridge, process 7, is gone", 3);
}

#[test]
fn a_process_is_known_by_its_start_where_the_bridge_says_it() {
    let mut asked = None;
    facts(STALE, Phase::Idle).judge(|_, at| {
        asked = Some(at);
        Process::Living
    });
    assert_eq!(asked, Some(5));
}

#[test]
fn without_a_state_of_its_own_the_writer_is_judged_by_gpu_meta() {
    let alone = |freshness| Facts { state: None, ..facts(freshness, Phase::Publishing) };
    check(&alone(FRESH), Process::Gone, "publishing: 2 devices, the newest round is 43 ms old, helper_pid 7", 0);
    check(&alone(STALE), Process::Gone, "stale: the newest round is 1500 ms old, more than 1000 ms; the bridge, process 7, is gone", 3);
    // A state that an earlier bridge left behind.
    let mut other = facts(FRESH, Phase::Stopping);
    other.state.as_mut().unwrap().helper_pid = 6;
    check(&other, Process::Living, "publishing: 2 devices, the newest round is 43 ms old, helper_pid 7", 0);
    // A bridge that adopted what another one left, and has no GPU.
    let idle = Facts { helper_pid: 6, ..facts(STALE, Phase::Idle) };
    check(&idle, Process::Living, "idle: no GPU, by design; helper_pid 7", 0);
}
