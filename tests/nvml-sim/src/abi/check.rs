//! The C file that holds the simulator's declarations against nvml.h.

use std::fmt::Write as _;

use super::{constants::constants, types};

/// An exported function as C declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prototype {
    /// The symbol.
    pub name: &'static str,
    /// What it returns.
    pub returns: String,
    /// Its parameters' types.
    pub parameters: Vec<String>,
}

/// A C file that compiles with `-Werror` when nvml.h declares each of the simulator's types, constants and functions just so.
pub fn c_check(functions: &[Prototype]) -> String {
    let mut text = String::from(
        "#define NVML_NO_UNVERSIONED_FUNC_DEFS\n#include <stddef.h>\n#include <nvml.h>\n#pragma clang diagnostic ignored \"-Wdeprecated-declarations\"\n\n",
    );
    let mut line = |assertion: &str, what: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "_Static_assert({assertion}, \"{what}\");");
    };
    for (name, size) in types::enums() {
        line(&format!("sizeof({name}) == {size}"), name);
    }
    for layout in types::layouts() {
        let name = layout.name;
        line(&format!("sizeof({name}) == {}", layout.size), name);
        line(&format!("_Alignof({name}) == {}", layout.align), name);
        for member in &layout.members {
            let what = format!("{name}.{}", member.name);
            line(&format!("offsetof({name}, {}) == {}", member.name, member.offset), &what);
            line(&format!("sizeof((({name} *)0)->{}) == {}", member.name, member.size), &what);
            line(&format!("__builtin_types_compatible_p(__typeof__((({name} *)0)->{}), {})", member.name, member.c_type), &what);
        }
        // A member that the simulator left out would leave a hole or hang behind the end; padding is what a C struct has anyway.
        if let Some(last) = layout.members.last() {
            let end = last.offset + last.size;
            line(&format!("sizeof({name}) - {end} < _Alignof({name})"), name);
        }
    }
    line(&format!("sizeof(nvmlValue_t) == {}", size_of::<types::nvmlValue_t>()), "nvmlValue_t");
    line(&format!("_Alignof(nvmlValue_t) == {}", align_of::<types::nvmlValue_t>()), "nvmlValue_t");
    for (member, size, c_type) in types::value_members() {
        let what = format!("nvmlValue_t.{member}");
        line(&format!("offsetof(nvmlValue_t, {member}) == 0 && sizeof(((nvmlValue_t *)0)->{member}) == {size}"), &what);
        line(&format!("__builtin_types_compatible_p(__typeof__(((nvmlValue_t *)0)->{member}), {c_type})"), &what);
    }
    for (name, value) in constants() {
        line(&format!("({name}) == {value}"), name);
    }
    for (at, function) in functions.iter().enumerate() {
        let parameters = if function.parameters.is_empty() { "void".to_owned() } else { function.parameters.join(", ") };
        let _ = writeln!(text, "{} (*check_{at})({parameters}) = {};", function.returns, function.name);
    }
    text
}
