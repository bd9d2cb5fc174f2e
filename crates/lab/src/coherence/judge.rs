//! Whether each object's history has an order that explains it.

use super::crash::{CrashOp, Redo};
use super::drive::{Any, History, MADE_AT, MODE, SMALL, START_MODE, STRIDES_AT, Thing};
use super::kills::{self, Doubt, Window};
use super::linear::{Entry, Object, Violation, explain};
use super::made::ABSENT;
use super::objects::{Log, LogOp, Names, Register};
use std::fmt::Debug;
use std::hash::Hash;

/// Every object's history must have an order.
pub(super) fn judge(history: &History, windows: &[Window], violations: &mut Vec<String>) {
    let used = history.iter().filter_map(|e| match &e.entry.op {
        Any::Register(n, _) => Some(n + 1),
        _ => None,
    });
    for n in 0..used.max().unwrap_or(0) {
        let start = match n {
            MODE => START_MODE,
            MADE_AT..STRIDES_AT => ABSENT,
            _ => 0,
        };
        let of = |any: &Any| match any {
            Any::Register(at, op) if *at == n => Some(op.clone()),
            _ => None,
        };
        // The bytes of objects are not with the metadata target.
        let mortal = !(SMALL..MODE).contains(&n);
        let told = Told { what: format!("register {n}"), thing: Thing::Register(n), mortal };
        one(&told, &Register { start }, history, windows, of, violations);
    }
    for n in 0..2 {
        let of = |any: &Any| match any {
            Any::Names(at, op) if *at == n => Some(op.clone()),
            _ => None,
        };
        let told = Told { what: format!("names {n}"), thing: Thing::Names(n), mortal: true };
        one(&told, &Names, history, windows, of, violations);
    }
    let of = |any: &Any| if let Any::Log(op) = any { Some(op.clone()) } else { None };
    let told = Told { what: "log".into(), thing: Thing::Log, mortal: true };
    match windows.is_empty() {
        true => {
            let all: Vec<LogOp> = history.iter().filter_map(|e| of(&e.entry.op)).collect();
            one(&told, &Log::of(&all), history, windows, of, violations);
        }
        // A kill may take back what the longest read has found.
        false => one(&told, &Log::default(), history, windows, of, violations),
    }
}

/// What a history is of.
struct Told {
    what: String,
    thing: Thing,
    /// Kills of a metadata target may lose what was not synced.
    mortal: bool,
}

fn one<O: Redo>(
    told: &Told,
    object: &O,
    history: &History,
    windows: &[Window],
    of: impl Fn(&Any) -> Option<O::Op>,
    violations: &mut Vec<String>,
) where
    O::Op: Debug + Doubt + Clone + Eq + Hash,
{
    if windows.is_empty() {
        let own =
            |e: &Entry<Any>| Some(Entry { who: e.who, call: e.call, back: e.back, op: of(&e.op)? });
        let own: Vec<Entry<O::Op>> = history.iter().filter_map(|e| own(&e.entry)).collect();
        return violations.extend(verdict(&told.what, object, &own));
    }
    let mut own = kills::among_kills(history, windows, told.thing, of);
    if !told.mortal {
        own.retain(|e| !matches!(e.op, CrashOp::Killed));
    }
    violations.extend(verdict(&told.what, &kills::mortal(object, &own), &own));
}

/// Operations shown that fit, before those that do not.
const SHOWN: usize = 12;

fn verdict<O: Object>(what: &str, object: &O, own: &[Entry<O::Op>]) -> Option<String>
where
    O::Op: Debug,
{
    match explain(object, own) {
        Ok(_) => None,
        Err(Violation::TooTangled) => Some(format!("{what}: not decided")),
        Err(Violation::Unexplained { fits, stuck }) => {
            let last = fits.iter().rev().take(SHOWN).rev();
            let last: Vec<_> = last.map(|i| format!("    {:?}", own[*i])).collect();
            let stuck: Vec<_> = stuck.iter().map(|i| format!("    {:?}", own[*i])).collect();
            Some(format!(
                "{what}: {} operations, no order explains them; after\n{}\n  none of these fits:\n{}",
                own.len(),
                last.join("\n"),
                stuck.join("\n")
            ))
        }
    }
}
