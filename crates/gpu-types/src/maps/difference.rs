//! Whether a map is of its definition's make, and if not, in what it differs.

use core::fmt;

use super::MapDefinition;

impl MapDefinition {
    /// What the definition demands of a map.
    pub const fn shape(&self) -> MapShape {
        MapShape {
            bpf_type: self.kind.bpf_type(),
            key_size: self.key_size,
            value_size: self.value_size,
            max_entries: self.max_entries,
            flags: self.flags,
        }
    }

    /// The first thing in which a map that was found differs from the definition; None when it is of the definition's make.
    ///
    /// ```
    /// use gpu_types::maps::{MapShape, PER_PID};
    ///
    /// let found = MapShape { max_entries: 64, ..PER_PID.shape() };
    /// assert_eq!(PER_PID.difference(&found).unwrap().to_string(), "its max_entries is 64, expected 4096");
    /// ```
    pub fn difference(&self, found: &MapShape) -> Option<Difference> {
        let expected = self.shape();
        [
            (Attribute::Type, expected.bpf_type, found.bpf_type),
            (Attribute::KeySize, expected.key_size, found.key_size),
            (Attribute::ValueSize, expected.value_size, found.value_size),
            (Attribute::MaxEntries, expected.max_entries, found.max_entries),
            (Attribute::Flags, expected.flags, found.flags),
        ]
        .into_iter()
        .find(|(_, expected, found)| expected != found)
        .map(|(attribute, expected, found)| Difference { attribute, expected, found })
    }
}

/// What the kernel says of a map (`struct bpf_map_info`), as far as a definition demands something. Sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapShape {
    /// The number of its type in the kernel's `enum bpf_map_type`.
    pub bpf_type: u32,
    /// The size of a key.
    pub key_size: u32,
    /// The size of a value.
    pub value_size: u32,
    /// How many entries fit.
    pub max_entries: u32,
    /// `map_flags`.
    pub flags: u32,
}

/// What of a map is compared before it is used. Displayed, it has the kernel's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attribute {
    /// The type of map.
    Type,
    /// The size of a key in bytes.
    KeySize,
    /// The size of a value in bytes.
    ValueSize,
    /// The number of entries.
    MaxEntries,
    /// `map_flags`.
    Flags,
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Type => "type",
            Self::KeySize => "key_size",
            Self::ValueSize => "value_size",
            Self::MaxEntries => "max_entries",
            Self::Flags => "map_flags",
        })
    }
}

/// In what a map is of another make than its definition. Displayed, it is a clause: `its type is hash, expected lru_hash`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// What differs.
    pub attribute: Attribute,
    /// What the definition demands.
    pub expected: u32,
    /// What the map has.
    pub found: u32,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { attribute, expected, found } = *self;
        match attribute {
            Attribute::Type => write!(f, "its {attribute} is {}, expected {}", TypeName(found), TypeName(expected)),
            Attribute::Flags => write!(f, "its {attribute} is {found:#x}, expected {expected:#x}"),
            _ => write!(f, "its {attribute} is {found}, expected {expected}"),
        }
    }
}

/// A number of the kernel's `enum bpf_map_type`.
struct TypeName(u32);

impl TypeName {
    /// As libbpf and bpftool write them, by number.
    const NAMES: [&'static str; 35] = [
        "unspec",
        "hash",
        "array",
        "prog_array",
        "perf_event_array",
        "percpu_hash",
        "percpu_array",
        "stack_trace",
        "cgroup_array",
        "lru_hash",
        "lru_percpu_hash",
        "lpm_trie",
        "array_of_maps",
        "hash_of_maps",
        "devmap",
        "sockmap",
        "cpumap",
        "xskmap",
        "sockhash",
        "cgroup_storage",
        "reuseport_sockarray",
        "percpu_cgroup_storage",
        "queue",
        "stack",
        "sk_storage",
        "devmap_hash",
        "struct_ops",
        "ringbuf",
        "inode_storage",
        "task_storage",
        "bloom_filter",
        "user_ringbuf",
        "cgrp_storage",
        "arena",
        "insn_array",
    ];
}

impl fmt::Display for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::NAMES.get(self.0 as usize) {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}
