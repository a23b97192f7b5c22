//! The forms in which flags are given, and what they come to.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Duration,
};

use bridge_cli::{
    PinGroup, PinMode, PollInterval, UsageError,
    args::{Args, DumpOutput, LogLevel, Mode, Request, SourceName, command},
};
use proptest::{collection::vec, prelude::any, proptest, sample::select};

fn read(arguments: &[&str]) -> Result<Request, UsageError> {
    Args::parse_from_go(arguments.iter().map(OsString::from))
}

#[track_caller]
fn run(arguments: &[&str]) -> Args {
    match read(arguments) {
        Ok(Request::Run(args)) => *args,
        other => panic!("{arguments:?}: {other:?}"),
    }
}

/// Every way in which Go's flag package takes `flag` with `value`.
fn forms(flag: &str, value: &str) -> [Vec<String>; 4] {
    [
        vec![format!("--{flag}"), value.to_owned()],
        vec![format!("--{flag}={value}")],
        vec![format!("-{flag}"), value.to_owned()],
        vec![format!("-{flag}={value}")],
    ]
}

#[track_caller]
fn check(flag: &str, value: &str, holds: impl Fn(&Args) -> bool) {
    for form in forms(flag, value) {
        let form: Vec<&str> = form.iter().map(String::as_str).collect();
        assert!(holds(&run(&form)), "{form:?}");
        // Between others, and behind an earlier one that is overridden.
        let among = [&["--keep-pins", "--pin-dir=/a"], form.as_slice(), &["-dump", "--"]].concat();
        assert!(holds(&run(&among)) || flag == "pin-dir", "{among:?}");
    }
}

#[track_caller]
fn check_refused(arguments: &[&str], parts: &[&str]) {
    let message = read(arguments).unwrap_err().to_string();
    assert!(!message.contains('\n'), "{message}");
    for part in parts {
        assert!(message.contains(part), "{arguments:?}: {message:?} does not say {part:?}");
    }
}

#[test]
fn without_flags_the_defaults_hold() {
    let args = run(&[]);
    assert_eq!(args.mode, Mode::Auto);
    assert_eq!(args.poll_interval.requested(), Duration::from_millis(100));
    assert_eq!(args.pin_dir, Path::new("/sys/fs/bpf"));
    assert_eq!(args.log_level, LogLevel::Info);
    assert_eq!((args.host_path.as_ref(), args.nvml_library_path.as_ref()), (None, None));
    assert_eq!((args.health, args.health_max_age, args.pin_mode, args.pin_group.as_ref()), (false, None, None, None));
    assert!(!(args.keep_pins || args.dump || args.symlink_nvidia_devs || args.idle_if_no_gpu || args.version));
    assert_eq!(args.warnings(), Vec::<String>::new());
    assert_eq!(run(&["--"]), args);
}

#[test]
fn every_flag_is_read_in_every_form() {
    for (value, mode) in [("auto", Mode::Auto), ("real", Mode::Real), ("mock", Mode::Mock)] {
        check("mode", value, |args| args.mode == mode);
    }
    for (value, millis) in
        [("1.5s", 1_500), ("1m30s", 90_000), (".5s", 500), ("1500us", 1), ("1500\u{b5}s", 1), ("1500\u{3bc}s", 1), ("2000000ns", 2)]
    {
        check("poll-interval", value, |args| args.poll_interval.effective().as_millis() == millis);
    }
    check("pin-dir", "/run/bpf", |args| args.pin_dir == Path::new("/run/bpf"));
    check("pin-dir", "relative/dir", |args| args.pin_dir == Path::new("relative/dir"));
    check("pin-dir", "/with=equals and space", |args| args.pin_dir == Path::new("/with=equals and space"));
    check("host-path", "/host", |args| args.host_path.as_deref() == Some(Path::new("/host")));
    check("host-path", "", |args| args.host_path.is_none());
    check("nvml-library-path", "/lib/libnvidia-ml.so.1", |args| {
        args.nvml_library_path.as_deref() == Some(Path::new("/lib/libnvidia-ml.so.1"))
    });
    for (value, level) in [
        ("debug", LogLevel::Debug),
        ("DEBUG", LogLevel::Debug),
        ("info", LogLevel::Info),
        ("Info", LogLevel::Info),
        ("warn", LogLevel::Warn),
        ("WARN", LogLevel::Warn),
        ("warning", LogLevel::Warn),
        ("Warning", LogLevel::Warn),
        ("WARNING", LogLevel::Warn),
        ("error", LogLevel::Error),
        ("eRRor", LogLevel::Error),
    ] {
        check("log-level", value, |args| args.log_level == level);
    }
}

#[test]
fn booleans_take_gos_values_and_only_behind_an_equals_sign() {
    type Get = fn(&Args) -> bool;
    let flags: [(&str, Get); 5] = [
        ("keep-pins", |args| args.keep_pins),
        ("dump", |args| args.dump),
        ("symlink-nvidia-devs", |args| args.symlink_nvidia_devs),
        ("idle-if-no-gpu", |args| args.idle_if_no_gpu),
        ("version", |args| args.version),
    ];
    for (flag, get) in flags {
        for dashes in ["-", "--"] {
            let check = |form: String, expected: bool| assert_eq!(get(&run(&["--host-path=/host", &form])), expected, "{form}");
            check(format!("{dashes}{flag}"), true);
            for value in ["1", "t", "T", "true", "TRUE", "True"] {
                check(format!("{dashes}{flag}={value}"), true);
            }
            for value in ["0", "f", "F", "false", "FALSE", "False"] {
                check(format!("{dashes}{flag}={value}"), false);
            }
            for value in ["", "yes", "no", "on", "tRUE", "2", " true"] {
                let name = format!("--{flag}");
                check_refused(&[&format!("{dashes}{flag}={value}")], &[&name, &format!("{value:?}"), "accepted: true, false"]);
            }
            check_refused(&[&format!("{dashes}{flag}"), "false"], &["\"false\"", &format!("--{flag}=VALUE")]);
        }
    }
}

#[test]
fn of_a_flag_given_twice_the_last_counts() {
    assert_eq!(run(&["--mode=real", "-mode", "mock"]).mode, Mode::Mock);
    assert!(!run(&["--keep-pins", "--keep-pins=false"]).keep_pins);
    assert!(run(&["--keep-pins=false", "-keep-pins"]).keep_pins);
    assert_eq!(run(&["--poll-interval=1s", "--mode=mock", "--poll-interval", "2s"]).poll_interval.requested(), Duration::from_secs(2));
    assert_eq!(run(&["--host-path=/host", "--host-path="]).host_path, None);
    assert_eq!(run(&["--log-level=loud", "--log-level=warn"]).log_level, LogLevel::Warn);
    check_refused(&["--mode=mock", "--mode=fast"], &["--mode", "\"fast\""]);
}

#[test]
fn the_sidecar_in_the_field_is_understood() {
    let sidecar =
        ["--mode=real", "--pin-dir=/sys/fs/bpf", "--poll-interval=500ms", "--log-level=info", "--keep-pins=false", "--idle-if-no-gpu"];
    let args = run(&sidecar);
    assert_eq!(args.mode, Mode::Real);
    assert_eq!(args.pin_dir, Path::new("/sys/fs/bpf"));
    assert_eq!(args.poll_interval.effective(), Duration::from_millis(500));
    assert_eq!(args.log_level, LogLevel::Info);
    assert!(!args.keep_pins && args.idle_if_no_gpu && !args.symlink_nvidia_devs);
    assert_eq!(args.host_path, None);

    let args = run(&[sidecar.as_slice(), &["--host-path=/host", "--symlink-nvidia-devs"]].concat());
    assert_eq!(args.host_path.as_deref(), Some(Path::new("/host")));
    assert!(args.symlink_nvidia_devs);
}

#[test]
fn help_is_asked_for_in_gos_forms_and_found_in_order() {
    for form in ["-h", "--h", "-help", "--help", "--help=true"] {
        assert_eq!(read(&[form]), Ok(Request::Help), "{form}");
        assert_eq!(read(&["--mode=mock", form, "--nonsense"]), Ok(Request::Help), "{form}");
    }
    check_refused(&["--nonsense", "--help"], &["--nonsense"]);
    check_refused(&["--", "--help"], &["--help"]);
}

#[test]
fn bad_values_are_refused_with_the_flag_the_value_and_what_is_accepted() {
    for form in forms("mode", "fast") {
        check_refused(&form.iter().map(String::as_str).collect::<Vec<_>>(), &["--mode", "\"fast\"", "auto, real, mock"]);
    }
    check_refused(&["--mode=REAL"], &["--mode", "\"REAL\"", "auto, real, mock"]);
    check_refused(&["--mode="], &["--mode", "\"\"", "auto, real, mock"]);
    check_refused(&["--mode=rael"], &["did you mean real?"]);
    check_refused(&["--log-level=loud"], &["--log-level", "\"loud\"", "debug, info, warn, error, warning"]);
    check_refused(&["--log-level=trace"], &["--log-level", "debug, info, warn, error"]);
    for value in ["-5s", "0", "0s", "-1ns"] {
        for form in forms("poll-interval", value) {
            let form: Vec<&str> = form.iter().map(String::as_str).collect();
            check_refused(&form, &["--poll-interval", &format!("{value:?}"), "greater than zero", "at most 1h"]);
        }
    }
    check_refused(&["--poll-interval=61m"], &["--poll-interval", "\"61m\"", "at most 1h"]);
    check_refused(&["--poll-interval=100"], &["--poll-interval", "missing unit", "100ms"]);
    check_refused(&["--poll-interval", "soon"], &["--poll-interval", "\"soon\"", "not a duration"]);
    check_refused(&["--poll-interval="], &["--poll-interval", "\"\"", "not a duration"]);
    check_refused(&["--pin-dir="], &["--pin-dir", "/sys/fs/bpf"]);
    check_refused(&["--host-path=host"], &["--host-path", "absolute path"]);
    for value in ["", "libnvidia-ml.so.1", "./libnvidia-ml.so.1", "/usr/lib64/"] {
        for form in forms("nvml-library-path", value) {
            let form: Vec<&str> = form.iter().map(String::as_str).collect();
            check_refused(&form, &["--nvml-library-path", &format!("{value:?}"), "absolute path"]);
        }
    }
}

#[test]
fn the_form_of_the_dump_is_text_unless_it_is_said() {
    assert_eq!(run(&["--dump"]).output, DumpOutput::Text);
    check("output", "json", |args| args.output == DumpOutput::Json);
    check("output", "table", |args| args.output == DumpOutput::Table);
    check("output", "text", |args| args.output == DumpOutput::Text);
    check_refused(&["--output=xml"], &["--output", "xml"]);
}

#[test]
fn health_and_access_are_read_in_every_form_and_bad_values_refused() {
    check("health-max-age", "1.5s", |args| args.health_max_age.map(bridge_cli::MaxAge::get) == Some(Duration::from_millis(1500)));
    check("pin-mode", "0640", |args| args.pin_mode.map(PinMode::bits) == Some(0o640));
    check("pin-group", "gpu", |args| args.pin_group == Some(PinGroup::Name("gpu".to_owned())));
    check("pin-group", "44", |args| args.pin_group == Some(PinGroup::Id(44)));
    let args = run(&["-health", "--pin-group=44", "--pin-mode", "0644", "--pin-mode=600"]);
    assert!(args.health && args.pin_mode.map(PinMode::bits) == Some(0o600));
    for (flag, value) in [
        ("--health-max-age", "0"),
        ("--health-max-age", "-1s"),
        ("--health-max-age", "5"),
        ("--pin-mode", "rw"),
        ("--pin-mode", "0400"),
        ("--pin-mode", "-1"),
        ("--pin-group", ""),
    ] {
        check_refused(&[flag, value], &[flag, "accepted:"]);
    }
}

#[test]
fn sources_are_listed_with_commas_or_by_giving_the_flag_again() {
    #[track_caller]
    fn check(arguments: &[&str], expected: &[SourceName]) {
        assert_eq!(run(arguments).sources().collect::<Vec<_>>(), expected, "{arguments:?}");
    }
    use SourceName::{Drm, Nvml};
    for form in forms("source", "drm") {
        check(&form.iter().map(String::as_str).collect::<Vec<_>>(), &[Drm]);
    }
    check(&[], &[Nvml, Drm]);
    check(&["--source=nvml"], &[Nvml]);
    // In index order, each once.
    check(&["--source=drm,nvml"], &[Nvml, Drm]);
    check(&["--source=drm", "--mode=real", "-source", "nvml", "--source=drm"], &[Nvml, Drm]);
    check(&["--mode=mock"], &[]);
    for value in ["", ",", "nvml,", "cuda", "nvml,cuda", "NVML"] {
        check_refused(&[&format!("--source={value}")], &["--source", "accepted: nvml, drm"]);
    }
    check_refused(&["--source=cuda", "--source=nvml"], &["\"cuda\""]);
    check_refused(&["--source"], &["--source needs a value", "nvml, drm"]);

    assert_eq!(run(&[]).drm_root, Path::new("/"));
    self::check("drm-root", "/host", |args| args.drm_root == Path::new("/host"));
    for value in ["", "host", "./host"] {
        check_refused(&["--drm-root", value], &["--drm-root", &format!("{value:?}"), "absolute path"]);
    }
}

#[test]
fn linking_needs_a_host_path() {
    for arguments in [&["--symlink-nvidia-devs"][..], &["--symlink-nvidia-devs", "--host-path="], &["--symlink-nvidia-devs", "--dump"]] {
        check_refused(arguments, &["--symlink-nvidia-devs", "--host-path"]);
    }
    assert!(!run(&["--symlink-nvidia-devs=false"]).symlink_nvidia_devs);
}

#[test]
fn an_unknown_flag_is_named_as_given_with_what_is_near_and_what_there_is() {
    check_refused(&["--poll-intervall=1s"], &["unknown flag --poll-intervall ", "did you mean --poll-interval?", "--nvml-library-path"]);
    check_refused(&["-log-levle", "debug"], &["unknown flag -log-levle ", "did you mean --log-level?"]);
    check_refused(&["--poll_interval=1s"], &["did you mean --poll-interval?"]);
    check_refused(&["--xyzzy"], &["unknown flag --xyzzy;", "--mode, --poll-interval"]);
    check_refused(&["-v"], &["unknown flag -v", "--version"]);
    check_refused(&["--no\nlines"], &["unknown flag \"--no\\nlines\""]);
    assert!(!read(&["--xyzzy"]).unwrap_err().to_string().contains("did you mean"));
}

#[test]
fn what_is_no_flag_is_refused() {
    check_refused(&["start"], &["unexpected argument \"start\"", "only flags"]);
    check_refused(&["--mode=mock", "real"], &["\"real\""]);
    check_refused(&["--", "--mode=mock"], &["\"--mode=mock\""]);
    check_refused(&["-"], &["\"-\""]);
    check_refused(&[""], &["\"\""]);
    check_refused(&["two\nlines"], &["\"two\\nlines\""]);
    for argument in ["---mode=mock", "--=mock", "-=", "---"] {
        check_refused(&[argument], &["malformed", &format!("{argument:?}"), "--flag=value"]);
    }
}

#[test]
fn a_flag_at_the_end_or_before_another_flag_misses_its_value() {
    check_refused(&["--mode"], &["--mode needs a value", "auto, real, mock"]);
    check_refused(&["-pin-dir"], &["--pin-dir needs a value", "--pin-dir=DIR"]);
    check_refused(&["--pin-dir", "--keep-pins"], &["--pin-dir needs a value"]);
    check_refused(&["--pin-dir", "--help"], &["--pin-dir needs a value"]);
    check_refused(&["--poll-interval", "--"], &["--poll-interval needs a value", "--poll-interval=DURATION"]);
    assert_eq!(run(&["--pin-dir", "--odd"]).pin_dir, Path::new("--odd"));
}

#[test]
fn arguments_that_are_not_utf8_are_paths_or_refused() {
    let bytes = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    let read = |argument: &[u8]| Args::parse_from_go([bytes(argument)]);
    match read(b"--pin-dir=/bpf/\xff") {
        Ok(Request::Run(args)) => assert_eq!(args.pin_dir, PathBuf::from(bytes(b"/bpf/\xff"))),
        other => panic!("{other:?}"),
    }
    for argument in [&b"--mode=\xff"[..], b"--log-level=\xff", b"--poll-interval=1\xffs", b"--keep-pins=\xff"] {
        let message = read(argument).unwrap_err().to_string();
        let flag = String::from_utf8_lossy(argument).split('=').next().unwrap().to_owned();
        assert!(message.contains(&flag) && message.contains("accepted"), "{message}");
    }
    assert!(read(b"--\xff=1").unwrap_err().to_string().contains("unknown flag \"--\\xFF\""));
    assert!(read(b"\xff").unwrap_err().to_string().contains("\"\\xFF\""));
}

#[test]
fn odd_but_accepted_combinations_draw_a_warning() {
    #[track_caller]
    fn check(arguments: &[&str], parts: &[&str]) {
        let warnings = run(arguments).warnings();
        assert_eq!(warnings.len(), parts.len(), "{warnings:?}");
        for (warning, part) in warnings.iter().zip(parts) {
            assert!(warning.contains(part), "{warnings:?}");
        }
    }
    check(&["--poll-interval=999us"], &["below 1ms"]);
    check(&["--poll-interval=1ms"], &[]);
    check(&["--poll-interval=150ms"], &[]);
    check(&["--poll-interval=500ms"], &["--poll-interval 500ms is above 150ms"]);
    check(&["--idle-if-no-gpu"], &["--idle-if-no-gpu has no effect in mode auto"]);
    check(&["--idle-if-no-gpu", "--mode=mock"], &["--idle-if-no-gpu has no effect in mode mock"]);
    check(&["--idle-if-no-gpu", "--mode=real"], &[]);
    check(&["--source=drm", "--mode=mock"], &["--source has no effect in mode mock"]);
    check(&["--source=drm", "--mode=auto"], &[]);
    check(&["--pin-mode=0620"], &["--pin-mode 0620 lets others than the bridge write"]);
    check(&["--pin-mode=0644"], &[]);
}

#[test]
fn the_definition_is_sound_and_describes_every_flag() {
    let command = command();
    command.clone().debug_assert();
    for argument in command.get_arguments() {
        assert!(argument.get_help().is_some_and(|help| !help.to_string().is_empty()), "{argument} has no help");
        assert!(argument.get_help_heading().is_some(), "{argument} is in no group");
    }
    assert_eq!(PollInterval::parse("100ms").unwrap(), run(&[]).poll_interval);
}

proptest! {
    #[test]
    fn no_command_line_makes_the_parser_panic(arguments in vec(any::<Vec<u8>>(), 0..4)) {
        drop(Args::parse_from_go(arguments.iter().map(|argument| OsStr::from_bytes(argument).to_owned())));
    }

    #[test]
    fn no_near_command_line_makes_the_parser_panic_or_the_message_span_lines(
        arguments in vec((select(vec!["-", "--", ""]), "(mode|poll-interval|keep-pins|dump|h|pin-dir|x|=|)", select(vec!["", "=", "=real", "=1\ns", "=\u{b5}s", "="]), ), 0..5)
    ) {
        let arguments = arguments.iter().map(|(dashes, name, value)| OsString::from(format!("{dashes}{name}{value}")));
        if let Err(error) = Args::parse_from_go(arguments) {
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}
