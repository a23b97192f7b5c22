//! Bars and histories in characters.

const EIGHTHS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A bar of `width` characters, filled to `share` of it (0 to 1).
pub(super) fn bar(share: f64, width: usize) -> String {
    let filled = (share.clamp(0.0, 1.0) * (width * 8) as f64).round() as usize;
    let mut bar = "█".repeat(filled / 8);
    if !filled.is_multiple_of(8) {
        bar.push(EIGHTHS[filled % 8 - 1]);
    }
    let drawn = filled.div_ceil(8);
    bar.extend(std::iter::repeat_n('·', width - drawn));
    bar
}

/// The newest `width` of `values`, the last one on the right; `top` has full height, `None` is a gap.
pub(super) fn spark(values: impl DoubleEndedIterator<Item = Option<u64>>, top: u64, width: usize) -> String {
    let newest: Vec<_> = values.rev().take(width).collect();
    let mut line = " ".repeat(width - newest.len());
    line.extend(newest.into_iter().rev().map(|value| match value {
        None => ' ',
        Some(value) => HEIGHTS[(value.min(top) as f64 / top.max(1) as f64 * 7.0).round() as usize],
    }));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_fill_by_eighths_of_a_character() {
        assert_eq!(bar(0.0, 4), "····");
        assert_eq!(bar(0.5, 4), "██··");
        assert_eq!(bar(0.53, 4), "██▏·");
        assert_eq!(bar(1.0, 4), "████");
        assert_eq!(bar(7.0, 2), "██");
        assert_eq!(bar(f64::NAN, 2), "··");
        assert_eq!(bar(0.5, 0), "");
    }

    #[test]
    fn histories_end_on_the_right() {
        let values = || [Some(0), Some(50), None, Some(100), Some(250)].into_iter();
        assert_eq!(spark(values(), 100, 7), "  ▁▅ ██");
        assert_eq!(spark(values(), 100, 2), "██");
        assert_eq!(spark(values(), 0, 5), "▁▁ ▁▁");
        assert_eq!(spark(values(), 100, 0), "");
    }
}
