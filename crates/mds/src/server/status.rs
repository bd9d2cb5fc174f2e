//! What `status` shows of a target.

use serde_json::json;

use super::state::State;

/// The state as JSON.
pub fn json(s: &State) -> Vec<u8> {
    let space = s.ns.osts.space();
    let osts: Vec<_> =
        s.ns.osts.all().into_iter().map(|(i, o)| json!({"index": i, "up": o.up})).collect();
    let clients: Vec<_> = s
        .clients
        .values()
        .filter(|c| !c.observer)
        .map(|c| {
            json!({
                "session": format!("{:016x}", c.session.id()),
                "description": c.session.description(),
                "connected": c.session.is_connected(),
                "sole": s.sole.holder == Some(c.session.id()),
                "leases": s.leases.table.count(c.session.id()),
            })
        })
        .collect();
    let [done, failed] = s.counts.all();
    let v = json!({
        "operations": { "done": done, "failed": failed },
        "transno": s.transno,
        "last_committed": s.committed,
        "dirty_records": s.ns.cache.dirty(),
        "cache_bytes": s.ns.cache.weight(),
        "open_files": s.ns.opens.len(),
        "locks": s.ns.locks.held(),
        "lock_waits": s.waiting_lock.len(),
        "stalled": s.stalled.len(),
        "leases": leases(s),
        "fencing": s.fencing.len(),
        "fenced": s.fencing.fenced,
        "no_room": s.no_room(),
        "destroy_waiting": s.garbage_waiting(),
        "remove_waiting": s.tidy.files(),
        "objects": space.objects,
        "full": s.ns.full,
        "failed": s.failed,
        "osts": osts,
        "clients": clients,
    });
    v.to_string().into_bytes()
}

fn leases(s: &State) -> serde_json::Value {
    let (l, f) = (&s.leases, &s.leases.figures);
    let (kept, granted) = l.ahead.count();
    let hot: Vec<_> = l.hot.all(s.options.clock.now()).iter().map(|fid| fid.to_string()).collect();
    json!({
        "count": l.table.len(),
        "limit": s.options.leases_total,
        "limit_per_client": s.options.leases_per_client,
        "grants": f.grants,
        "recalls": f.recalls,
        "calls": f.calls,
        "calls_under_way": l.calls.under_way(),
        "waits": f.waits,
        "waiting": l.waiting(),
        "evictions": f.evictions,
        "put_off": f.put_off,
        "accessed": f.accessed,
        "hot": hot,
        "kept_ahead": kept,
        "granted_ahead": granted,
    })
}
