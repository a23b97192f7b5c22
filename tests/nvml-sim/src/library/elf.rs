//! Symbols made absent in a shared object's image.
//!
//! The entry in the dynamic symbol table loses its name. It stays in its hash chain, where the dynamic linker compares the name that it
//! looks for with the empty one and goes on.

const SECTION_DYNSYM: u32 = 11;
const SYMBOL_SIZE: usize = 24;

/// Makes a symbol absent.
pub(super) fn hide(image: &mut [u8], symbol: &str) -> Result<(), &'static str> {
    let entries = entries(image)?;
    let entry = entries.iter().find(|entry| entry.name == symbol.as_bytes()).ok_or("there is no such symbol")?.at;
    image.get_mut(entry..entry + 4).ok_or("the image is cut off")?.fill(0);
    Ok(())
}

/// Whether an image has a symbol.
pub(super) fn has(image: &[u8], symbol: &str) -> bool {
    entries(image).is_ok_and(|entries| entries.iter().any(|entry| entry.name == symbol.as_bytes()))
}

/// The names of the defined and needed dynamic symbols.
#[cfg(test)]
pub(super) fn names(image: &[u8]) -> Vec<String> {
    entries(image).unwrap().into_iter().map(|entry| String::from_utf8(entry.name).unwrap()).collect()
}

struct Entry {
    at: usize,
    name: Vec<u8>,
}

fn entries(image: &[u8]) -> Result<Vec<Entry>, &'static str> {
    const CUT: &str = "the image is cut off";
    if image.get(..6) != Some(b"\x7fELF\x02\x01") {
        return Err("not a 64-bit little-endian ELF file");
    }
    let sections = number::<8>(image, 0x28).ok_or(CUT)?;
    let size = number::<2>(image, 0x3a).ok_or(CUT)?;
    let count = number::<2>(image, 0x3c).ok_or(CUT)?;
    let section = |index: usize| sections + index * size;
    let dynsym =
        (0..count).map(section).find(|at| number::<4>(image, at + 4) == Some(SECTION_DYNSYM as usize)).ok_or("no dynamic symbol table")?;
    let symbols = number::<8>(image, dynsym + 0x18).ok_or(CUT)?;
    let length = number::<8>(image, dynsym + 0x20).ok_or(CUT)?;
    let strings = section(number::<4>(image, dynsym + 0x28).ok_or(CUT)?);
    let strings = number::<8>(image, strings + 0x18).ok_or(CUT)?;
    // The first entry is the null symbol.
    (1..length / SYMBOL_SIZE)
        .map(|index| {
            let at = symbols + index * SYMBOL_SIZE;
            let name = strings + number::<4>(image, at).ok_or(CUT)?;
            let name = image.get(name..).ok_or(CUT)?.split(|byte| *byte == 0).next().unwrap_or_default();
            Ok(Entry { at, name: name.to_vec() })
        })
        .collect()
}

fn number<const N: usize>(image: &[u8], at: usize) -> Option<usize> {
    let mut bytes = [0; 8];
    bytes[..N].copy_from_slice(image.get(at..at.checked_add(N)?)?);
    usize::try_from(u64::from_le_bytes(bytes)).ok()
}

#[cfg(test)]
mod tests {
    use super::{hide, names};

    #[test]
    fn a_hidden_symbol_is_gone_and_the_others_stay() {
        let mut image = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let before = names(&image);
        assert!(before.iter().any(|name| name == "malloc"), "{before:?}");
        hide(&mut image, "malloc").unwrap();
        let after = names(&image);
        let missing: Vec<_> = before.iter().filter(|name| !after.contains(name)).collect();
        assert_eq!(missing, ["malloc"]);
        assert_eq!(hide(&mut image, "malloc"), Err("there is no such symbol"));
    }

    #[test]
    fn what_is_no_elf_file_is_refused() {
        assert!(hide(&mut [0; 100], "malloc").is_err());
        assert_eq!(hide(&mut b"\x7fELF\x02\x01".to_vec(), "malloc"), Err("the image is cut off"));
    }
}
