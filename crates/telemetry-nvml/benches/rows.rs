//! What the driver hands out becomes rows: samples are believed and folded, lists read and united.
#![expect(missing_docs, reason = "criterion's macros make public functions without")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};

#[path = "parts/driver_rows.rs"]
mod driver_rows;

fn samples_to_processes(criterion: &mut Criterion) {
    let mut rows = driver_rows::DriverRows::new(248);
    criterion.bench_function("248 sample rows and a list to processes", |bencher| bencher.iter(|| black_box(rows.filter())));
}

criterion_group!(benches, samples_to_processes);
criterion_main!(benches);
