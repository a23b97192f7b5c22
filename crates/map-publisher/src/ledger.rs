//! What a per-process map is known to hold, and what must change to make it equal a round. No system calls here.

/// What one map holds, and the plan for the round at hand. All buffers are kept from round to round.
#[derive(Debug)]
pub(crate) struct Ledger<K, V> {
    /// Ascending by key. A value of None means: the key may be there, with a value that nobody knows.
    held: Vec<(K, Option<V>)>,
    spare: Vec<(K, Option<V>)>,
    upsert_keys: Vec<K>,
    upsert_values: Vec<V>,
    departed: Vec<K>,
    new: usize,
    deleted: usize,
}

impl<K: Ord + Copy, V: PartialEq + Copy> Ledger<K, V> {
    pub(crate) fn new() -> Self {
        Self {
            held: Vec::new(),
            spare: Vec::new(),
            upsert_keys: Vec::new(),
            upsert_values: Vec::new(),
            departed: Vec::new(),
            new: 0,
            deleted: 0,
        }
    }

    /// Compares `round` (ascending, keys unique) with what the map holds.
    pub(crate) fn plan(&mut self, round: &[(K, V)]) {
        self.upsert_keys.clear();
        self.upsert_values.clear();
        self.departed.clear();
        self.new = 0;
        self.deleted = 0;

        let mut held = self.held.iter().peekable();
        for &(key, value) in round {
            while let Some((gone, _)) = held.next_if(|(held, _)| *held < key) {
                self.departed.push(*gone);
            }
            let present = held.next_if(|(held, _)| *held == key);
            if present.is_none() {
                self.new += 1;
            }
            if present.is_none_or(|(_, known)| *known != Some(value)) {
                self.upsert_keys.push(key);
                self.upsert_values.push(value);
            }
        }
        self.departed.extend(held.map(|(gone, _)| *gone));
    }

    /// Keys and values that the plan writes: new ones, changed ones, and those whose value in the map is not known.
    pub(crate) fn upserts(&self) -> (&[K], &[V]) {
        (&self.upsert_keys, &self.upsert_values)
    }

    /// Keys that the plan still has to delete.
    pub(crate) fn departed(&self) -> &[K] {
        &self.departed
    }

    /// They were deleted.
    pub(crate) fn departed_are_gone(&mut self) {
        self.deleted += self.departed.len();
        let mut departed = self.departed.drain(..).peekable();
        // Both ascend.
        self.held.retain(|(held, _)| departed.next_if(|gone| gone == held).is_none());
    }

    /// How many entries the plan writes, and how many it has deleted.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.upsert_keys.len(), self.deleted)
    }

    /// How many entries the map would hold if everything new were written before anything departed is deleted.
    pub(crate) fn peak(&self) -> usize {
        self.held.len() + self.new
    }

    /// The plan was carried out: the map holds `round`.
    pub(crate) fn settle(&mut self, round: &[(K, V)]) {
        self.held.clear();
        self.held.extend(round.iter().map(|&(key, value)| (key, Some(value))));
    }

    /// The plan failed somewhere: whatever it touched, written or deleted, is not known any more, and so the next plan takes it up again.
    pub(crate) fn doubt(&mut self) {
        self.spare.clear();
        let mut touched = merged(&self.upsert_keys, &self.departed).peekable();
        for &(key, value) in &self.held {
            while let Some(new) = touched.next_if(|touched| *touched < key) {
                self.spare.push((new, None));
            }
            let value = if touched.next_if(|touched| *touched == key).is_some() { None } else { value };
            self.spare.push((key, value));
        }
        self.spare.extend(touched.map(|new| (new, None)));
        std::mem::swap(&mut self.held, &mut self.spare);
    }

    /// Every entry whose value is known.
    pub(crate) fn known(&self) -> impl Iterator<Item = (K, V)> + '_ {
        self.held.iter().filter_map(|&(key, value)| Some((key, value?)))
    }

    /// The map is read: it holds what `read` appends, in any order. A value of None was not readable.
    pub(crate) fn found(&mut self, read: impl FnOnce(&mut Vec<(K, Option<V>)>)) {
        self.held.clear();
        read(&mut self.held);
        self.held.sort_unstable_by_key(|entry| entry.0);
        self.held.dedup_by_key(|entry| entry.0);
    }
}

/// The keys of two ascending lists, ascending.
fn merged<'a, K: Ord + Copy>(a: &'a [K], b: &'a [K]) -> impl Iterator<Item = K> + 'a {
    let (mut a, mut b) = (a.iter().copied().peekable(), b.iter().copied().peekable());
    std::iter::from_fn(move || match (a.peek(), b.peek()) {
        (Some(next), Some(other)) if next > other => b.next(),
        (None, _) => b.next(),
        _ => a.next(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(ledger: &mut Ledger<u32, u8>, round: &[(u32, u8)], upserts: &[u32], departed: &[u32]) {
        ledger.plan(round);
        assert_eq!(ledger.upserts().0, upserts, "upserts");
        let values: Vec<u8> = upserts.iter().map(|key| round.iter().find(|entry| entry.0 == *key).unwrap().1).collect();
        assert_eq!(ledger.upserts().1, values, "values");
        assert_eq!(ledger.departed(), departed, "departed");
    }

    fn holding(round: &[(u32, u8)]) -> Ledger<u32, u8> {
        let mut ledger = Ledger::new();
        ledger.settle(round);
        ledger
    }

    #[test]
    fn the_first_round_is_written_whole() {
        check(&mut Ledger::new(), &[(1, 10), (2, 20)], &[1, 2], &[]);
    }

    #[test]
    fn only_what_changed_is_written() {
        check(&mut holding(&[(1, 10), (2, 20), (3, 30)]), &[(1, 10), (2, 21), (3, 30)], &[2], &[]);
        check(&mut holding(&[(1, 10)]), &[(1, 10)], &[], &[]);
    }

    #[test]
    fn departed_keys_are_deleted_wherever_they_stand() {
        let held = [(1, 1), (3, 3), (5, 5), (7, 7)];
        check(&mut holding(&held), &[(3, 3), (7, 7)], &[], &[1, 5]);
        check(&mut holding(&held), &[(0, 0), (5, 5), (6, 6)], &[0, 6], &[1, 3, 7]);
        check(&mut holding(&held), &[], &[], &[1, 3, 5, 7]);
    }

    #[test]
    fn keys_of_unknown_value_are_written_when_in_the_round_and_deleted_when_not() {
        let mut ledger = Ledger::new();
        ledger.found(|held| held.extend([(9, None), (4, None), (4, None)]));
        check(&mut ledger, &[(4, 40)], &[4], &[9]);
    }

    #[test]
    fn a_plan_that_failed_is_taken_up_again_in_the_next_round() {
        let mut ledger = holding(&[(2, 2), (4, 4), (6, 6)]);
        check(&mut ledger, &[(1, 1), (4, 5), (6, 6), (8, 8)], &[1, 4, 8], &[2]);
        ledger.doubt();
        // 4 goes back to its old value, 8 is gone again, 2 may or may not have been deleted.
        check(&mut ledger, &[(1, 1), (4, 4), (6, 6)], &[1, 4], &[2, 8]);
        ledger.settle(&[(1, 1), (4, 4), (6, 6)]);
        check(&mut ledger, &[(1, 1), (4, 4), (6, 6)], &[], &[]);
    }

    /// A process that departs in a plan that fails somewhere and is back in the next round as it was: its entry may be gone meanwhile.
    #[test]
    fn what_departed_in_a_plan_that_failed_is_not_known_to_be_there() {
        // The deletion went through, and the writing of 4 did not.
        let mut ledger = holding(&[(2, 2), (4, 4), (6, 6)]);
        check(&mut ledger, &[(4, 5)], &[4], &[2, 6]);
        ledger.departed_are_gone();
        ledger.doubt();
        check(&mut ledger, &[(2, 2), (4, 5), (6, 6)], &[2, 4, 6], &[]);

        // The deletion failed, after 2 or before it.
        let mut ledger = holding(&[(2, 2), (4, 4), (6, 6)]);
        check(&mut ledger, &[(1, 1), (4, 4), (9, 9)], &[1, 9], &[2, 6]);
        ledger.doubt();
        check(&mut ledger, &[(2, 2), (4, 4)], &[2], &[1, 6, 9]);
    }

    #[test]
    fn what_is_gone_is_not_deleted_again_after_a_plan_that_failed() {
        let mut ledger = holding(&[(2, 2), (4, 4)]);
        check(&mut ledger, &[(4, 5)], &[4], &[2]);
        ledger.departed_are_gone();
        ledger.doubt();
        check(&mut ledger, &[(4, 5)], &[4], &[]);
    }

    #[test]
    fn what_reading_back_finds_is_corrected() {
        let mut ledger = holding(&[(1, 1), (2, 2), (3, 3)]);
        // 2 is missing, 3 was changed, 7 is a stranger.
        ledger.found(|held| held.extend([(7, Some(7)), (1, Some(1)), (3, Some(9))]));
        check(&mut ledger, &[(1, 1), (2, 2), (3, 3)], &[2, 3], &[7]);
    }

    #[test]
    fn the_peak_counts_what_is_held_and_what_is_new() {
        let mut ledger = holding(&[(1, 1), (2, 2)]);
        ledger.plan(&[(2, 3), (3, 3)]);
        assert_eq!((ledger.peak(), ledger.counts()), (3, (2, 0)));
        ledger.departed_are_gone();
        assert_eq!((ledger.departed(), ledger.counts(), ledger.peak()), (&[][..], (2, 1), 2));
        ledger.plan(&[]);
        assert_eq!(ledger.peak(), 1);
    }
}
