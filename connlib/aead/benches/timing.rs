//! Tests whether the time of a batch depends on secrets, as dudect does (Reparaz, Balasch, Verbauwhede:
//! "Dude, is my code constant time?", 2017). It measures inputs of two classes in random order, and applies
//! Welch's t-test to all times, and to those up to several percentiles. `make test-timing` runs it.
//!
//! It fails if |t| is 10 or more. If |t| is 5 or more, run it again on a quiet machine. The first test is a
//! control, a comparison that stops early: it must be found.

use std::{
    hint::black_box,
    process::ExitCode,
    time::{Duration, Instant},
};

use convoy_aead::{Aead, Key, Open, SLOTS, SealInPlace, TAG, seam::Kernel};

const MEASUREMENTS: usize = 100_000;
const WARM_UP: usize = 1_000;
const PERCENTILES: [usize; 6] = [100, 99, 95, 90, 75, 50];
const LEAK: f64 = 10.0;
/// Bytes of a packet: whole blocks and a part of one.
const LEN: usize = 200;

fn main() -> ExitCode {
    let mut control = Control::default();
    let control_leaks = leaks("control: a comparison that stops early", |class| {
        control.measure(class)
    });
    let mut found = false;
    for kernel in Kernel::all() {
        println!("{}", kernel.aead().implementation());
        found |= kernel_leaks(kernel);
    }
    match control_leaks && !found {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn kernel_leaks(kernel: Kernel) -> bool {
    let mut batch = Batch::new(kernel.aead());
    let mut one_time_keys = [[0; 32]; SLOTS];
    let found = [
        leaks("open: tags wrong in the first or the last byte", |class| {
            batch.prepare([7; 32], [0; LEN]);
            let wrong = [LEN, LEN + TAG - 1][class.index()];
            batch
                .sealed
                .iter_mut()
                .for_each(|sealed| sealed[wrong] ^= 1);
            batch.measure_open()
        }),
        leaks("open: tags wrong in one bit or in half of them", |class| {
            batch.prepare([7; 32], [0; LEN]);
            let difference = class.zeros_or_noise(&mut batch.noise);
            batch.sealed.iter_mut().for_each(|sealed| {
                let tag = sealed[LEN..].iter_mut().zip::<[u8; TAG]>(difference);
                tag.for_each(|(byte, difference)| *byte ^= difference | 1);
            });
            batch.measure_open()
        }),
        leaks("open: plaintexts of zeros or of noise", |class| {
            let plaintext = class.zeros_or_noise(&mut batch.noise);
            batch.prepare([7; 32], plaintext);
            batch.measure_open()
        }),
        leaks("seal: plaintexts of zeros or of noise", |class| {
            let plaintext = class.zeros_or_noise(&mut batch.noise);
            batch.prepare([7; 32], plaintext);
            batch.measure_seal(plaintext)
        }),
        leaks("seal: a key of zeros or of noise", |class| {
            let key = class.zeros_or_noise(&mut batch.noise);
            batch.prepare(key, [0; LEN]);
            batch.measure_seal([0; LEN])
        }),
        leaks("poly1305: one-time keys of zeros or of noise", |class| {
            one_time_keys.fill(class.zeros_or_noise(&mut batch.noise));
            measure(|| kernel.poly1305(black_box(&one_time_keys), [&[0xff; 192]; SLOTS]))
        }),
    ];
    found.contains(&true)
}

/// One of the two kinds of inputs.
#[derive(Clone, Copy)]
enum Class {
    Left,
    Right,
}

impl Class {
    fn index(self) -> usize {
        self as usize
    }

    fn zeros_or_noise<const N: usize>(self, noise: &mut Noise) -> [u8; N] {
        // Without branches: stores that differ in width, or a mispredicted branch, would show in the measurement.
        let mask = black_box(self.index() as u8).wrapping_neg();
        black_box(std::array::from_fn(|_| noise.next() as u8 & mask))
    }
}

/// Packets of one batch, always at the same addresses.
struct Batch {
    aead: Aead,
    key: Key,
    sealed: Vec<[u8; LEN + TAG]>,
    opened: Vec<[u8; LEN]>,
    noise: Noise,
}

impl Batch {
    fn new(aead: Aead) -> Self {
        Self {
            aead,
            key: Key::new(&[0; 32]),
            sealed: vec![[0; LEN + TAG]; SLOTS],
            opened: vec![[0; LEN]; SLOTS],
            noise: Noise(1),
        }
    }

    fn prepare(&mut self, key: [u8; 32], plaintext: [u8; LEN]) {
        self.key = Key::new(&key);
        self.measure_seal(plaintext);
    }

    fn measure_seal(&mut self, plaintext: [u8; LEN]) -> Duration {
        let (aead, key) = (self.aead, &self.key);
        for sealed in &mut self.sealed {
            sealed[..LEN].copy_from_slice(&plaintext);
        }
        let slots = self.sealed.iter_mut();
        let slots = slots.map(|sealed| SealInPlace::new(key, 1, sealed).expect("it fits"));
        let mut slots: Vec<_> = slots.collect();
        measure(|| aead.seal_in_place(black_box(&mut slots)))
    }

    fn measure_open(&mut self) -> Duration {
        let (aead, key) = (self.aead, &self.key);
        let slots = self.sealed.iter().zip(&mut self.opened);
        let slots = slots.map(|(sealed, opened)| Open::new(key, 1, sealed, opened));
        let mut slots: Vec<_> = slots.map(|slot| slot.expect("it fits")).collect();
        measure(|| aead.open(black_box(&mut slots)))
    }
}

/// A comparison that stops early: shows that the test detects a leak.
#[derive(Default)]
struct Control {
    tags: [[u8; TAG]; 2],
}

impl Control {
    fn measure(&mut self, class: Class) -> Duration {
        self.tags[1] = [0; TAG];
        self.tags[1][[0, TAG - 1][class.index()]] = 1;
        let compare = |tags: &[[u8; TAG]; 2]| tags[0].iter().zip(&tags[1]).all(|(a, b)| a == b);
        // As many comparisons as a batch makes.
        measure(|| (0..SLOTS).all(|_| !compare(black_box(&self.tags))))
    }
}

fn measure<T>(work: impl FnOnce() -> T) -> Duration {
    let began = Instant::now();
    black_box(work());
    began.elapsed()
}

/// Prints the greatest |t|; returns whether it shows a leak.
fn leaks(name: &str, mut measure: impl FnMut(Class) -> Duration) -> bool {
    let mut noise = Noise(2);
    let mut times = Vec::with_capacity(MEASUREMENTS);
    for n in 0..WARM_UP + MEASUREMENTS {
        let class = [Class::Left, Class::Right][(noise.next() & 1) as usize];
        let time = measure(class).as_nanos() as f64;
        if n >= WARM_UP {
            times.push((class, time));
        }
    }
    let t = greatest_t(&times);
    let found = match t {
        ..5.0 => "",
        ..LEAK => "  perhaps a leak: run it again",
        _ => "  a leak",
    };
    println!("{name:<50} |t| = {t:7.2}{found}");
    t >= LEAK
}

fn greatest_t(times: &[(Class, f64)]) -> f64 {
    let mut sorted: Vec<_> = times.iter().map(|(_, time)| *time).collect();
    sorted.sort_by(f64::total_cmp);
    let greatest = PERCENTILES.map(|percentile| {
        let limit = sorted[sorted.len() * percentile / 100 - 1];
        welch(times.iter().filter(|(_, time)| *time <= limit))
    });
    greatest.into_iter().fold(0.0, f64::max)
}

/// |t| of Welch's test.
fn welch<'a>(times: impl Iterator<Item = &'a (Class, f64)>) -> f64 {
    let (mut left, mut right) = (Moments::default(), Moments::default());
    times.for_each(|(class, time)| match class {
        Class::Left => left.add(*time),
        Class::Right => right.add(*time),
    });
    let error = (left.variance() / left.count + right.variance() / right.count).sqrt();
    match (left.mean - right.mean).abs() {
        0.0 => 0.0,
        difference => difference / error,
    }
}

/// Mean and variance by Welford's method.
#[derive(Default)]
struct Moments {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Moments {
    fn add(&mut self, value: f64) {
        self.count += 1.0;
        let before = value - self.mean;
        self.mean += before / self.count;
        self.squares += before * (value - self.mean);
    }

    fn variance(&self) -> f64 {
        self.squares / (self.count - 1.0)
    }
}

/// Splitmix64.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
