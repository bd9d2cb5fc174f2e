//! Mutation of a corpus: small damage to valid bytes reaches deeper than noise does.

/// Values that sit on the edges of counts, lengths and offsets.
const EDGES: &[u64] = &[
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0xffff,
    0x10000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX,
];

/// Most accepted inputs kept for further mutation, above those given.
const KEPT: usize = 1024;

/// Makes inputs from a corpus; the same seed makes the same inputs.
pub struct Mutator {
    state: u64,
    corpus: Vec<Vec<u8>>,
    /// The first so many are never replaced.
    given: usize,
}

impl Mutator {
    pub fn new(seed: u64, mut corpus: Vec<Vec<u8>>) -> Self {
        corpus.push(Vec::new());
        corpus.push(vec![0; 64]);
        corpus.push(vec![0xff; 64]);
        let given = corpus.len();
        Self { state: seed, corpus, given }
    }

    /// Adds an accepted input, so that later ones build on it; replaces an old one when full.
    pub fn keep(&mut self, input: Vec<u8>) {
        if self.corpus.len() < KEPT + self.given {
            self.corpus.push(input);
        } else {
            let at = self.below(self.corpus.len() - self.given) + self.given;
            self.corpus[at] = input;
        }
    }

    /// SplitMix64.
    fn word(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.word() % limit.max(1) as u64).unwrap_or(0)
    }

    fn byte(&mut self) -> u8 {
        self.word().to_le_bytes()[0]
    }

    /// The next input, at most `longest` bytes.
    pub fn next(&mut self, longest: usize) -> Vec<u8> {
        let pick = self.below(self.corpus.len());
        let mut input = self.corpus[pick].clone();
        for _ in 0..=self.below(6) {
            self.damage(&mut input);
        }
        input.truncate(longest);
        input
    }

    fn damage(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len());
        match self.below(9) {
            0 => input.truncate(at),
            1 if !input.is_empty() => {
                let bit = self.below(8);
                input[at] ^= 1 << bit;
            }
            2 if !input.is_empty() => input[at] = self.byte(),
            3 | 4 => self.edge(input, at),
            5 => {
                let piece: Vec<_> = (0..self.below(32)).map(|_| self.byte()).collect();
                input.splice(at..at, piece);
            }
            6 => {
                let end = (at + self.below(16)).min(input.len());
                input.drain(at..end);
            }
            7 => {
                let other = self.below(self.corpus.len());
                let from = self.below(self.corpus[other].len());
                input.truncate(at);
                input.extend_from_slice(&self.corpus[other][from..]);
            }
            _ => {
                let end = (at + self.below(64)).min(input.len());
                let piece = input[at..end].to_vec();
                input.splice(at..at, piece);
            }
        }
    }

    /// Writes an edge value of 1, 2, 4 or 8 bytes, little-endian, over what is there.
    fn edge(&mut self, input: &mut [u8], at: usize) {
        let value = EDGES[self.below(EDGES.len())].to_le_bytes();
        let width = 1 << self.below(4);
        for (to, from) in input.iter_mut().skip(at).zip(&value[..width]) {
            *to = *from;
        }
    }
}
