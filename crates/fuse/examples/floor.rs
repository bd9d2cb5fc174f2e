//! A file system that does nothing, as fast as it can: what the kernel and this crate cost by themselves.
//!
//! `floor MOUNTPOINT auto|on|off [MICROSECONDS]` serves 2,000 files of 64 MiB of zeros, `f0` to `f1999`, and takes new ones; reads and
//! getxattr take the given time, as if a server answered. Ends when its standard input does.

use pinstripe_fuse::*;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const FILES: u64 = 2_000;
const SIZE: u64 = 64 << 20;
const LONG: Duration = Duration::from_secs(3600);

struct Floor {
    wait: Duration,
}

fn attr(node: u64) -> Attr {
    let (mode, nlink) = if node == 1 { (0o40777, 2) } else { (0o100666, 1) };
    Attr {
        ino: node,
        mode,
        nlink,
        size: SIZE,
        blocks: SIZE / 512,
        blksize: 4096,
        ..Attr::default()
    }
}

fn entry(node: u64) -> Entry {
    Entry { nodeid: node, attr: attr(node), attr_ttl: LONG, entry_ttl: LONG, ..Entry::default() }
}

/// Files by their number; others by a hash of their name, and absent until they are made.
fn number(name: &OsStr) -> Option<u64> {
    let digits = name.as_bytes().strip_prefix(b"f")?;
    let n: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (n < FILES).then_some(n + 2)
}

fn hashed(name: &OsStr) -> u64 {
    let mix = |h: u64, &b: &u8| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
    name.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, mix) | 1 << 63
}

impl Floor {
    fn serve(&self) {
        if !self.wait.is_zero() {
            std::thread::sleep(self.wait);
        }
    }
}

impl Filesystem for Floor {
    fn lookup(&self, _: &Request, _: u64, name: &OsStr, reply: Reply<Entry>) {
        match number(name) {
            Some(node) => reply.ok(entry(node)),
            None => reply.err(Errno::ENOENT),
        }
    }
    fn getattr(&self, _: &Request, node: u64, _: Option<u64>, reply: Reply<AttrOut>) {
        reply.ok(AttrOut { attr: attr(node), ttl: LONG });
    }
    fn setattr(&self, _: &Request, node: u64, _: SetAttr, reply: Reply<AttrOut>) {
        reply.ok(AttrOut { attr: attr(node), ttl: LONG });
    }
    fn getxattr(&self, _: &Request, _: u64, _: &OsStr, reply: Reply<Xattr>) {
        self.serve();
        reply.err(Errno::new(libc::ENODATA));
    }
    fn open(&self, _: &Request, _: u64, open: OpenIn, reply: Reply<Open>) {
        let direct = open.flags & libc::O_DIRECT as u32 != 0;
        let flags = if direct { open_flags::DIRECT_IO } else { open_flags::KEEP_CACHE };
        let flags = if direct { flags | open_flags::PARALLEL_DIRECT_WRITES } else { flags };
        reply.ok(Open { fh: 0, flags: flags | open_flags::NOFLUSH });
    }
    fn create(&self, _: &Request, _: u64, name: &OsStr, _: CreateIn, reply: Reply<Created>) {
        let open = Open { fh: 0, flags: open_flags::NOFLUSH };
        reply.ok(Created { entry: entry(hashed(name)), open });
    }
    fn unlink(&self, _: &Request, _: u64, _: &OsStr, reply: Reply<()>) {
        reply.ok(());
    }
    fn release(&self, _: &Request, _: u64, _: ReleaseIn, reply: Reply<()>) {
        reply.ok(());
    }
    fn read(&self, _: &Request, _: u64, read: ReadIn, reply: Reply<Data>) {
        self.serve();
        // What is there is good enough.
        reply.fill(|buf| Ok(buf.len().min(SIZE.saturating_sub(read.offset) as usize)));
    }
    fn write(&self, _: &Request, _: u64, _: WriteIn, data: WriteData<'_>, reply: Reply<u32>) {
        reply.ok(data.len() as u32);
    }
    fn opendir(&self, _: &Request, _: u64, _: u32, reply: Reply<Open>) {
        reply.ok(Open { fh: 0, flags: open_flags::CACHE_DIR | open_flags::KEEP_CACHE });
    }
    fn releasedir(&self, _: &Request, _: u64, _: ReleaseIn, reply: Reply<()>) {
        reply.ok(());
    }
    fn readdirplus(
        &self,
        _: &Request,
        _: u64,
        _: u64,
        offset: u64,
        size: u32,
        reply: Reply<DirPlusBuf>,
    ) {
        let mut list = DirPlusBuf::new(size);
        for n in offset..FILES {
            if !list.add(&entry(n + 2), n + 1, OsStr::new(&format!("f{n}"))) {
                break;
            }
        }
        reply.ok(list);
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [mountpoint, wish, rest @ ..] = &words[..] else {
        return Err("see the head of this file".into());
    };
    let options = MountOptions {
        source: "none".into(),
        subtype: "floor".into(),
        io_uring: wish.parse()?,
        ..MountOptions::default()
    };
    let wait = rest.first().map_or(Ok(0), |w| w.parse())?;
    let fs = Arc::new(Floor { wait: Duration::from_micros(wait) });
    let mount = Mount::new(Path::new(mountpoint), &options)?;
    let session = Session::new(fs, mount, Config { max_threads: 32, ..Config::default() })?;
    let handle = session.handle();
    let running = session.spawn()?;
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    handle.unmount(true)?;
    Ok(running.join()?)
}
