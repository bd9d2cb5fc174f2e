//! Sends an item to where it is made: on the traversal's own thread where something was at the destination
//! or later operands may meet it, else wholly on the engine's.

use super::links::{First, Met};
use super::run::{Item, Run};
use super::{ranks, regular, special};
use crate::engine::{Home, interrupt};
use std::path::PathBuf;
use std::sync::Arc;

/// `fresh`: the item's directory was made in this run, and nobody looks at the item again.
pub fn send(run: &Arc<Run>, item: Item, met: Option<Met>, fresh: bool) {
    let run = run.clone();
    // A link is made sooner than handed over.
    let link = run.options.hard_link || run.options.symbolic_link;
    if item.st.is_file() && !link && !matches!(met, Some(Met::Again(_))) {
        run.counts.found(if run.options.attributes_only { 0 } else { item.st.size });
    }
    if fresh && !item.operand && !link {
        let Some((item, met)) = ranks::offer(&run, item, met) else { return };
        let engine_run = run.clone();
        let home = Some(Home::of(&item.dst));
        run.engine.submit(home, Box::new(move |_| begin(&engine_run, item, met, true)));
    } else {
        if matches!(met, Some(Met::Again(_))) {
            // What comes next may look at this name, through a link that is there.
            run.engine.drain();
        }
        run.settle(&[Some(item.st.id()), item.dst_st.map(|st| st.id())]);
        begin(&run, item, met, false);
    }
}

/// Another name of a file that was met, where what is there stays (`-u`): a link to the first copy; where
/// that failed this one stands for it.
pub fn send_kept(run: &Arc<Run>, item: Item, first: Arc<First>) {
    run.engine.drain();
    again(run, item, first, |run, item| item.done_before(run));
}

/// A file that nothing is in the way of, in this thread.
pub fn copy_here(run: &Arc<Run>, item: Item) {
    make(run, item, true);
}

fn begin(run: &Arc<Run>, mut item: Item, met: Option<Met>, there: bool) {
    match met {
        None => make(run, item, there),
        Some(Met::First(first)) => {
            item.first = Some(first);
            make(run, item, there);
        }
        Some(Met::Again(first)) => again(run, item, first, copy_here),
    }
}

/// Another name of a file that was met: a link, as soon as its first copy is there; where that failed it
/// is the first, and gets what `otherwise` does.
fn again(run: &Arc<Run>, mut item: Item, first: Arc<First>, otherwise: fn(&Arc<Run>, Item)) {
    let run = run.clone();
    let anew = first.clone();
    first.when_there(Box::new(move |copied: Option<PathBuf>| match copied {
        Some(name) => special::link(&run, item, &name, true, true),
        None => {
            item.first = Some(anew);
            otherwise(&run, item);
        }
    }));
}

/// `there`: this is a thread of the engine already.
fn make(run: &Arc<Run>, item: Item, there: bool) {
    let o = &run.options;
    if interrupt::pending() {
        return item.failed(run);
    }
    if o.symbolic_link {
        special::link_symbolically(run, item);
    } else if o.hard_link {
        let src = item.src.clone();
        let replace = o.force || o.clobber == super::options::Clobber::Ask;
        special::link(run, item, &src, replace, false);
    } else if item.st.is_file() || o.as_regular && !item.st.is_symlink() {
        let Some(opened) = regular::open(run, item) else { return };
        if there {
            regular::copy(run, opened);
        } else {
            opened.note(run);
            let engine_run = run.clone();
            // What was to be made is there.
            run.engine.submit(None, Box::new(move |_| regular::copy(&engine_run, opened)));
        }
    } else {
        special::make(run, item);
    }
}
