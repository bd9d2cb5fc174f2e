//! The copy engine beside the genuine cp: bytes, holes and sizes, whatever happens meanwhile.

mod copies;
mod faults;
mod tasks;
mod tools;
