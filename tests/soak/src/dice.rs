//! Numbers that look random and follow from a seed.

#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    /// Different ones for each seed and purpose.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        // xorshift stands still at 0, and begins slowly with few bits set.
        let mut dice = Self((seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ purpose.rotate_left(40)) | 1);
        for _ in 0..8 {
            dice.below(2);
        }
        dice
    }

    /// Below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}
