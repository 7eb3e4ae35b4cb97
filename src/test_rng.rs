//! Numbers that a seed decides, for tests that play at random and have to play the same again. The library's tests share them, and
//! the fuzz targets of `tests/it/offline/fuzz.rs`, which take this file in by its path.

/// SplitMix64, from its seed.
pub struct SeededRng(pub u64);

impl SeededRng {
    /// Any number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of the numbers before `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next_u64() % end
    }

    /// True so often.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of these.
    pub fn choose<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize].clone()
    }
}
