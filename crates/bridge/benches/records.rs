//! A round of 16 GPUs with 248 processes each becomes records.
#![expect(missing_docs, reason = "criterion's macros make public functions without")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};

#[path = "parts/full_round.rs"]
mod full_round;

fn round_to_records(criterion: &mut Criterion) {
    let mut full = full_round::FullRound::new(16, 248);
    criterion.bench_function("round to records, 16×248", |bencher| bencher.iter(|| black_box(full.fill())));
}

criterion_group!(benches, round_to_records);
criterion_main!(benches);
