//! The simulator's declarations against NVIDIA's header, and its exports against its declarations.

use std::{fs, process::Command};

use nvml_sim::{
    abi::c_check,
    library, nvidia,
    symbols::{ABSENT_IN_470, Symbol, prototypes},
};

#[test]
fn types_constants_and_signatures_are_those_of_nvml_h() {
    let files = nvidia::fetch(&nvidia::target_directory().unwrap()).unwrap_or_else(|error| panic!("{error}"));
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("check.c");
    let text = c_check(&prototypes());
    fs::write(&source, &text).unwrap();
    let compile = || {
        Command::new("clang").args(["-std=c11", "-Wall", "-Werror", "-fsyntax-only", "-isystem"]).arg(&files.include).arg(&source).output()
    };
    let output = compile().expect("clang must be installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.matches("_Static_assert").count() > 250 && text.matches("(*check_").count() == Symbol::ALL.len());

    // The compiler would notice: one changed offset, one changed value, one changed parameter.
    for (right, wrong) in [
        ("offsetof(nvmlPciInfo_t, busId) == 36", "offsetof(nvmlPciInfo_t, busId) == 40"),
        ("(NVML_ERROR_GPU_IS_LOST) == 15", "(NVML_ERROR_GPU_IS_LOST) == 16"),
        ("(nvmlDevice_t, nvmlUtilization_t *)", "(nvmlDevice_t, nvmlMemory_t *)"),
    ] {
        assert!(text.contains(right), "{right}");
        fs::write(&source, text.replace(right, wrong)).unwrap();
        assert!(!compile().unwrap().status.success(), "{wrong}");
    }
}

#[test]
fn exactly_the_declared_symbols_are_exported() {
    let directory = tempfile::tempdir().unwrap();
    let installed = library::install(directory.path(), &[]).unwrap();
    let output = Command::new("nm").args(["--dynamic", "--defined-only", "--format=posix"]).arg(installed.path()).output().unwrap();
    let listing = String::from_utf8(output.stdout).unwrap();
    let mut exported: Vec<_> = listing.lines().filter_map(|line| line.split(' ').next()).filter(|name| name.starts_with("nvml")).collect();
    let mut declared: Vec<_> = Symbol::ALL.iter().map(|symbol| symbol.name()).collect();
    exported.sort_unstable();
    declared.sort_unstable();
    assert_eq!(exported, declared);
}

#[test]
#[expect(unsafe_code, reason = "a library is loaded and symbols are looked up")]
fn hidden_symbols_are_absent_and_the_rest_is_usable() {
    let directory = tempfile::tempdir().unwrap();
    let installed = library::install(directory.path(), ABSENT_IN_470).unwrap();
    // SAFETY: the library's initialization does nothing.
    let library = unsafe { libloading::Library::new(installed.path()) }.unwrap();
    for symbol in Symbol::ALL {
        // SAFETY: the symbol is looked up, not used.
        let found = unsafe { library.get::<unsafe extern "C" fn()>(symbol.name().as_bytes()) }.is_ok();
        assert_eq!(found, !ABSENT_IN_470.contains(&symbol.name()), "{}", symbol.name());
    }
    assert!(library::install(directory.path(), &["nvmlNoSuchThing"]).is_err());
}
