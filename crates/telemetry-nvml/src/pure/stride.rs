//! Process lists as bytes: how wide their rows are, and what stands in them.

/// What an untouched byte of a list's buffer holds.
pub(crate) const SENTINEL: u8 = 0xA5;

/// The widest row that any driver writes: R535's first releases wrote 32 bytes where the struct has 24. A buffer for n rows must hold n of
/// these.
pub(crate) const WIDEST: usize = 32;

const NOT_MIG: u32 = u32::MAX;
/// Linux' own limit of PIDs.
const LARGEST_PID: u32 = 1 << 22;
/// GPU instances are numbered from 0; NVML knows 8 slices, 15 at most with what is planned.
const LARGEST_INSTANCE: u32 = 255;

/// Which struct a list's call fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// `nvmlProcessInfo_v1_t`: PID and memory.
    V1,
    /// `nvmlProcessInfo_v2_t`, which `_v3` uses too: PID, memory, GPU instance, compute instance; or the wider one.
    V2,
}

/// A row of a process list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListRow {
    pub(crate) pid: u32,
    /// `None`: not available.
    pub(crate) used_memory_bytes: Option<u64>,
    /// The MIG GPU instance.
    pub(crate) mig_instance: Option<u8>,
    /// The compute instance within it.
    pub(crate) compute_instance: Option<u8>,
}

/// The first `count` rows of a buffer that was filled with [`SENTINEL`] before a driver wrote into it, appended to `rows`. PIDs that no
/// process has are left out.
pub(crate) fn rows(buffer: &[u8], count: usize, layout: Layout, rows: &mut Vec<ListRow>) {
    let count = count.min(buffer.len() / WIDEST);
    let stride = match layout {
        Layout::V1 => 16,
        Layout::V2 => recognise(buffer, count),
    };
    rows.extend(buffer.chunks_exact(stride).take(count).map(|row| list_row(row, layout)).filter(|row| is_a_pid(row.pid)));
}

/// 24, or 32 for the first R535 drivers.
fn recognise(buffer: &[u8], count: usize) -> usize {
    let narrow_end = count * 24;
    let wide_end = count * WIDEST;
    // Rows of 24 bytes end before the last row of 32 ends.
    if untouched(&buffer[narrow_end..wide_end]) {
        return 24;
    }
    // A driver that wrote beyond the rows it counted says nothing by where it stopped; the rows themselves must.
    let wrote_beyond = !untouched(&buffer[wide_end..]);
    let sound = |stride: usize| buffer.chunks_exact(stride).take(count).all(is_sound);
    if wrote_beyond && sound(24) { 24 } else { WIDEST }
}

fn untouched(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == SENTINEL)
}

fn is_sound(row: &[u8]) -> bool {
    let instance = |at| matches!(word(row, at), NOT_MIG | 0..=LARGEST_INSTANCE);
    word(row, 0) <= LARGEST_PID && instance(16) && instance(20)
}

fn list_row(row: &[u8], layout: Layout) -> ListRow {
    let used_memory_bytes = u64::from(word(row, 8)) | u64::from(word(row, 12)) << 32;
    ListRow {
        pid: word(row, 0),
        used_memory_bytes: (used_memory_bytes != u64::MAX).then_some(used_memory_bytes),
        mig_instance: instance(row, 16, layout),
        compute_instance: instance(row, 20, layout),
    }
}

fn instance(row: &[u8], at: usize, layout: Layout) -> Option<u8> {
    match layout {
        Layout::V1 => None,
        Layout::V2 => u8::try_from(word(row, at)).ok(),
    }
}

fn word(row: &[u8], at: usize) -> u32 {
    row.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// Whether a process can have this PID: 0 stands for what NVML cannot attribute, all ones for nothing.
pub(crate) const fn is_a_pid(pid: u32) -> bool {
    pid != 0 && pid != u32::MAX
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Written = (u32, u64, u32, u64);

    fn written(rows_written: &[Written], stride: usize, capacity: usize) -> Vec<u8> {
        let mut buffer = vec![SENTINEL; capacity * WIDEST];
        for (row, (pid, memory, instance, confidential)) in buffer.chunks_exact_mut(stride).zip(rows_written) {
            // The padding after the PID stays as it was, as when a driver writes field by field.
            row[0..4].copy_from_slice(&pid.to_le_bytes());
            row[8..16].copy_from_slice(&memory.to_le_bytes());
            if stride > 16 {
                row[16..20].copy_from_slice(&instance.to_le_bytes());
                row[20..24].copy_from_slice(&instance.to_le_bytes());
            }
            if stride == 32 {
                row[24..32].copy_from_slice(&confidential.to_le_bytes());
            }
        }
        buffer
    }

    #[track_caller]
    fn check(buffer: &[u8], count: usize, layout: Layout, expected: &[(u32, Option<u64>, Option<u8>)]) {
        let mut found = Vec::new();
        rows(buffer, count, layout, &mut found);
        let found: Vec<_> = found.iter().map(|row| (row.pid, row.used_memory_bytes, row.mig_instance)).collect();
        assert_eq!(found, expected);
    }

    fn forty() -> Vec<Written> {
        (0..40).map(|n| (1_000 + n, u64::from(n) << 28, NOT_MIG, if n % 2 == 0 { 0 } else { u64::MAX })).collect()
    }

    #[test]
    fn forty_rows_of_either_width_are_read() {
        let expected: Vec<_> = forty().iter().map(|row| (row.0, Some(row.1), None)).collect();
        check(&written(&forty(), 24, 64), 40, Layout::V2, &expected);
        check(&written(&forty(), 32, 64), 40, Layout::V2, &expected);
        check(&written(&forty(), 32, 40), 40, Layout::V2, &expected);
    }

    #[test]
    fn a_single_row_of_either_width_is_read() {
        check(&written(&[(7, 5, 3, 0)], 24, 64), 1, Layout::V2, &[(7, Some(5), Some(3))]);
        check(&written(&[(7, 5, 3, 0)], 32, 64), 1, Layout::V2, &[(7, Some(5), Some(3))]);
    }

    #[test]
    fn a_driver_that_clears_the_whole_buffer_is_read_by_its_rows() {
        let mut buffer = written(&forty(), 24, 64);
        buffer[40 * 24..64 * 24].fill(0);
        let expected: Vec<_> = forty().iter().map(|row| (row.0, Some(row.1), None)).collect();
        check(&buffer, 40, Layout::V2, &expected);
        let mut wide = written(&forty(), 32, 64);
        wide[40 * 32..].fill(0);
        check(&wide, 40, Layout::V2, &expected);
    }

    #[test]
    fn the_oldest_rows_have_no_instance() {
        check(&written(&[(7, 5, 0, 0), (9, u64::MAX, 0, 0)], 16, 8), 2, Layout::V1, &[(7, Some(5), None), (9, None, None)]);
    }

    #[test]
    fn what_is_no_process_is_left_out() {
        check(&written(&[(0, 5, NOT_MIG, 0), (u32::MAX, 5, NOT_MIG, 0), (4, 1, NOT_MIG, 0)], 24, 8), 3, Layout::V2, &[(4, Some(1), None)]);
    }

    #[test]
    fn a_count_beyond_the_buffer_is_cut() {
        check(&written(&[(7, 5, NOT_MIG, 0), (8, 5, NOT_MIG, 0)], 32, 2), 1_000, Layout::V2, &[(7, Some(5), None), (8, Some(5), None)]);
    }

    proptest! {
        #[test]
        fn rows_survive_the_way_through_the_buffer(
            processes in prop::collection::vec((1..LARGEST_PID, any::<u64>(), prop_oneof![Just(NOT_MIG), 0_u32..16], prop_oneof![Just(0), Just(u64::MAX), 0_u64..1 << 40]), 0..60),
            wide in any::<bool>(),
            spare in 0_usize..8,
        ) {
            let buffer = written(&processes, if wide { 32 } else { 24 }, processes.len() + spare);
            let mut found = Vec::new();
            rows(&buffer, processes.len(), Layout::V2, &mut found);
            let expected: Vec<_> = processes.iter().map(|(pid, memory, instance, _)| ListRow {
                pid: *pid,
                used_memory_bytes: (*memory != u64::MAX).then_some(*memory),
                mig_instance: u8::try_from(*instance).ok(),
                compute_instance: u8::try_from(*instance).ok(),
            }).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn any_bytes_are_read_without_harm(buffer in prop::collection::vec(any::<u8>(), 0..600), count in any::<usize>()) {
            for layout in [Layout::V1, Layout::V2] {
                let mut found = Vec::new();
                rows(&buffer, count, layout, &mut found);
                prop_assert!(found.iter().all(|row| is_a_pid(row.pid)));
            }
        }
    }
}
