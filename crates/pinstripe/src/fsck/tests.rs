//! Damages a real image in each way and sees it found; an undamaged one is clean, and checking
//! changes nothing of what it reads.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, ClientConfig, Data, OpenFlags};
use mds::keys;
use mds::record::{self, Dent, Inode};
use proto::layout::{LayoutSpec, ObjectId};
use proto::mds::Cred;
use proto::wire::List;
use proto::{Fid, FileKind};
use store::fjall_engine::{self, FjallOptions};
use store::{Commit, Write};

use super::*;
use crate::mgs::{Registrar, connect};
use crate::node::{Node, Spec};
use crate::volume::Wish;

/// Bytes of the striped file: three chunks of 64 KiB and a bit.
const LARGE: usize = 200_000;

/// A stopped file system: `/d` with `large` (two stripes), `small` (inline) and `hard`, a second
/// name of `small`.
struct Image {
    dir: tempfile::TempDir,
    d: Fid,
    large: Fid,
    small: Fid,
}

impl Image {
    fn make() -> Image {
        let dir = tempfile::tempdir().unwrap();
        let wish = Wish { name: None, mdts: Some(2), osts: Some(2) };
        let (volume, _) = Volume::prepare(dir.path(), &wish).unwrap();
        let spec = Spec {
            mgs: Some(volume.mgs()),
            mdts: volume.mdts(),
            osts: volume.osts(),
            ..Spec::default()
        };
        let node = Arc::new(Node::open(&spec).unwrap());
        let session = connect(&node.local(), "MGS", None, Duration::ZERO).unwrap();
        let knows = Arc::downgrade(&node);
        let registrar = Registrar::start(session, node.registrations("unix:/none"), move |c| {
            knows.upgrade().unwrap().know(c);
        });
        node.settle(2);
        let targets = node.targets().iter().map(|t| (t.name(), node.local())).collect();
        let fs = node.mgs().unwrap().label().fs;
        let client = Client::connect(ClientConfig {
            mgs: client::Mgs::Targets { fs, targets },
            key: None,
            subdir: None,
            description: "test".into(),
            options: client::Options::default(),
        })
        .unwrap();
        let (d, large, small) = fill(&client);
        client.shutdown().unwrap();
        drop(registrar);
        node.close();
        Image { dir, d, large, small }
    }

    fn check(&self, data_too: bool) -> Findings {
        let args = FsckArgs { data: Some(self.dir.path().into()), data_too, ..FsckArgs::default() };
        let (parts, _volume) = places(&args).unwrap();
        check(&parts, data_too).unwrap()
    }

    /// The kinds of problems found.
    fn kinds(&self, data_too: bool) -> Vec<String> {
        let mut kinds: Vec<String> =
            self.check(data_too).problems.into_iter().map(|p| p.kind).collect();
        kinds.sort();
        kinds.dedup();
        kinds
    }

    /// Paths of the objects' files of `large`, in stripe order.
    fn objects(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for stripe in 0..2 {
            for ost in ["ost0", "ost1"] {
                for comp in 0..3 {
                    let id = ObjectId { fid: self.large, comp, stripe };
                    let path =
                        self.dir.path().join(ost).join("objects").join(oss::name::object_path(&id));
                    found.extend(path.exists().then_some(path));
                }
            }
        }
        assert_eq!(found.len(), 2, "{found:?}");
        found
    }

    /// Changes records of the metadata target.
    fn edit(&self, writes: Vec<Write>) {
        let path = self.dir.path().join("mdt0/store");
        let store = fjall_engine::acquire(&path, "test", 0, &FjallOptions::default()).unwrap();
        let last = store.info().last;
        let (tell, told) = std::sync::mpsc::channel();
        let commit = Commit { prev_last: last, last, writes: writes.into() };
        store.submit(commit, Box::new(move |r| tell.send(r).unwrap()));
        told.recv().unwrap().unwrap();
        store.close().unwrap();
    }

    fn inode(&self, fid: Fid) -> Inode {
        let view = fjall_engine::open_read_only(&self.dir.path().join("mdt0/store")).unwrap();
        let bytes = view.get(&keys::of(keys::INODE, fid)).unwrap().unwrap();
        record::decode(&bytes).unwrap()
    }

    fn edit_inode(&self, fid: Fid, change: impl FnOnce(&mut Inode)) {
        let mut inode = self.inode(fid);
        change(&mut inode);
        self.edit(vec![Write::Put(keys::of(keys::INODE, fid), record::encode(&inode))]);
    }
}

fn fill(client: &Client) -> (Fid, Fid, Fid) {
    let cred = Cred { uid: 0, gid: 0, groups: List(Vec::new()) };
    let root = client.root().fid;
    let make = |dir: Fid, name: &[u8], mode: u32, open: Option<OpenFlags>| {
        client.create(&cred, dir, name, mode, 0, 0, b"", 0, open).unwrap()
    };
    let write = OpenFlags { write: true, ..OpenFlags::default() };
    let d = make(root, b"d", libc::S_IFDIR | 0o755, None).attr.fid;
    let spec = LayoutSpec { stripe_size: 65536, stripe_count: 2, stripe_offset: 0 };
    client.set_layout(&cred, d, spec).unwrap();
    let mut fids = Vec::new();
    for (name, len) in [(&b"large"[..], LARGE), (b"small", 1000)] {
        let made = make(d, name, libc::S_IFREG | 0o644, Some(write));
        let file = made.file.unwrap();
        let bytes: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8 + 1).collect();
        assert_eq!(file.write(0, Data::Slice(&bytes)).unwrap(), len);
        file.fsync(false).unwrap();
        file.release();
        fids.push(made.attr.fid);
    }
    client.link(&cred, fids[1], d, b"hard").unwrap();
    (d, fids[0], fids[1])
}

#[test]
fn an_undamaged_image_is_clean_and_stays_as_it_is() {
    let image = Image::make();
    let snapshot = |_: ()| {
        let out = std::process::Command::new("sh")
            .args([
                "-c",
                "find ost0 ost1 mgs pinstripe.json key mdt0/label -type f | sort | xargs md5sum",
            ])
            .current_dir(image.dir.path())
            .output()
            .unwrap();
        assert!(out.status.success());
        out.stdout
    };
    let before = snapshot(());
    let f = image.check(true);
    assert_eq!(f.problems, []);
    assert_eq!(f.notes, Vec::<String>::new());
    assert_eq!((f.inodes, f.entries, f.objects), (4, 4, 2));
    assert!(f.blocks_good >= (LARGE / 4096) as u64 && f.blocks_unknown == 0);
    assert_eq!(snapshot(()), before);
}

#[test]
fn objects_that_do_not_fit_their_owners_are_found() {
    let image = Image::make();
    let objects = image.objects();
    let aside = image.dir.path().join("run/aside");
    std::fs::rename(&objects[1], &aside).unwrap();
    assert_eq!(image.kinds(false), ["owner-without-object"]);
    std::fs::rename(&aside, &objects[1]).unwrap();

    let stranger = ObjectId { fid: Fid::new(0x2_0000_7777, 9), comp: 0, stripe: 0 };
    let path = image.dir.path().join("ost1/objects").join(oss::name::object_path(&stranger));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, b"whose?").unwrap();
    let found = image.check(false).problems;
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].kind.as_str(), found[0].target.as_str()),
        ("object-without-owner", "OST0001")
    );
    assert!(found[0].text.contains(&oss::name::object_name(&stranger)), "{}", found[0].text);
    std::fs::remove_file(&path).unwrap();

    let file = std::fs::OpenOptions::new().write(true).open(&objects[0]).unwrap();
    let len = file.metadata().unwrap().len();
    file.set_len(len + 1).unwrap();
    assert_eq!(image.kinds(false), ["object-too-long"]);
    file.set_len(len).unwrap();
    assert_eq!(image.kinds(true), Vec::<String>::new());
}

/// What a crash cut short is no damage; what came after it is.
#[test]
fn leftovers_of_a_crash_are_told_from_damage() {
    let image = Image::make();
    let ost = image.dir.path().join("ost0");
    let plant = |oid: u32| {
        let id = ObjectId { fid: Fid::new(0x2_0000_7777, oid), comp: 0, stripe: 0 };
        let path = ost.join("objects").join(oss::name::object_path(&id));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, b"new when the servers were killed").unwrap();
    };
    // Dropped without being closed, it is as after kill -9; then a boot that ends well.
    drop(oss::Ost::open(&ost, oss::OstOptions::default()).unwrap());
    plant(1);
    let found = image.check(true);
    assert_eq!((found.problems.len(), found.notes.len()), (0, 1), "{:?}", found.problems);
    oss::Ost::open(&ost, oss::OstOptions::default()).unwrap().close().unwrap();
    let found = image.check(true);
    assert_eq!((found.problems.len(), found.notes.len()), (0, 1), "{:?}", found.problems);
    assert!(found.notes[0].contains("left from a crash"), "{}", found.notes[0]);
    plant(2);
    assert_eq!(image.kinds(false), ["object-without-owner"]);
}

#[test]
fn damaged_records_of_an_ost_are_found() {
    let image = Image::make();
    for name in ["verifier", "fences"] {
        let path = image.dir.path().join("ost0").join(name);
        let before = std::fs::read(&path).ok();
        std::fs::write(&path, b"PSTVERIF, but no more than that").unwrap();
        let found = image.check(false).problems;
        let [problem] = &found[..] else { panic!("{found:?}") };
        assert_eq!((problem.kind.as_str(), problem.fid.as_str()), ("damaged-record", name));
        assert!(problem.text.contains("remove the file"), "{}", problem.text);
        match before {
            Some(bytes) => std::fs::write(&path, bytes).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
    }
    assert_eq!(image.kinds(true), Vec::<String>::new());
}

/// A lost store is one problem, not one for each object whose file was in it.
#[test]
fn a_lost_store_is_found_and_not_made_anew() {
    let image = Image::make();
    let (store, aside) = (image.dir.path().join("mdt0/store"), image.dir.path().join("aside"));
    std::fs::rename(&store, &aside).unwrap();
    let found = image.check(true);
    let [problem] = &found.problems[..] else { panic!("{:?}", found.problems) };
    assert_eq!((problem.target.as_str(), problem.kind.as_str()), ("MDT0000", "store-lost"));
    assert!(problem.text.contains(store.to_str().unwrap()), "{}", problem.text);
    assert!(found.notes.iter().any(|n| n.contains("MDT0000 cannot tell")), "{:?}", found.notes);
    assert!(!store.exists());
    std::fs::rename(&aside, &store).unwrap();
    assert_eq!(image.kinds(true), Vec::<String>::new());
}

#[test]
fn a_flipped_byte_is_found_when_data_is_read() {
    use std::os::unix::fs::FileExt;
    let image = Image::make();
    let path = &image.objects()[0];
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 5000).unwrap();
    file.write_all_at(&[byte[0] ^ 0x20], 5000).unwrap();
    assert_eq!(image.kinds(false), Vec::<String>::new());
    let found = image.check(true).problems;
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].kind.as_str(), found[0].fid.clone()),
        ("checksum", image.large.to_string())
    );
    assert!(found[0].text.contains("4096"), "{}", found[0].text);
}

#[test]
fn records_that_do_not_fit_each_other_are_found() {
    let image = Image::make();
    let undo = |fid: Fid| {
        let inode = image.inode(fid);
        Write::Put(keys::of(keys::INODE, fid), record::encode(&inode))
    };
    let entry = keys::entry(image.d, keys::name_hash(b"large"), b"large");
    let dent = Dent { fid: image.large, kind: FileKind::File };
    let good_entry = Write::Put(entry.clone(), record::encode(&dent));

    let good = undo(image.small);
    image.edit_inode(image.small, |i| i.nlink = 7);
    assert_eq!(image.kinds(false), ["wrong-link-count"]);
    image.edit(vec![good]);

    let good = undo(image.d);
    image.edit_inode(image.d, |i| i.nlink += 1);
    assert_eq!(image.kinds(false), ["wrong-link-count"]);
    image.edit_inode(image.d, |i| {
        i.nlink -= 1;
        i.size += 1;
    });
    assert_eq!(image.kinds(false), ["wrong-entry-count"]);
    image.edit(vec![good.clone()]);
    image.edit_inode(image.d, |i| i.home.as_mut().unwrap().dir = image.large);
    assert_eq!(image.kinds(false), ["wrong-parent"]);
    image.edit(vec![good]);

    image.edit(vec![Write::Del(entry.clone())]);
    let kinds = image.kinds(false);
    assert!(kinds.contains(&"unreachable".to_string()), "{kinds:?}");
    image.edit(vec![good_entry.clone()]);

    let good = undo(image.large);
    image.edit(vec![Write::Del(keys::of(keys::INODE, image.large))]);
    let kinds = image.kinds(false);
    for kind in ["entry-without-inode", "object-without-owner"] {
        assert!(kinds.contains(&kind.to_string()), "{kinds:?}");
    }
    image.edit(vec![good.clone()]);

    let wrong = Dent { fid: image.large, kind: FileKind::Dir };
    image.edit(vec![Write::Put(entry.clone(), record::encode(&wrong))]);
    assert!(image.kinds(false).contains(&"kind-differs".to_string()));
    image.edit(vec![Write::Put(entry, b"\xff\xff".to_vec())]);
    assert!(image.kinds(false).contains(&"damaged-record".to_string()));
    image.edit(vec![good_entry]);

    image.edit_inode(image.large, |i| i.size = 1000);
    assert_eq!(image.kinds(false), ["object-too-long"]);
    image.edit(vec![good]);
    image.edit_inode(image.small, |i| i.size = 10);
    assert_eq!(image.kinds(false), ["wrong-size"]);
    image.edit_inode(image.small, |i| i.size = 1000);
    assert_eq!(image.kinds(true), Vec::<String>::new());
}

/// What waits to be destroyed is owned until it is.
#[test]
fn objects_that_wait_for_their_destruction_are_owned() {
    let image = Image::make();
    let inode = image.inode(image.large);
    let layout = inode.layout.unwrap();
    let garbage = record::Garbage { layout: layout.clone() };
    image.edit(vec![
        Write::Del(keys::of(keys::INODE, image.large)),
        Write::Del(keys::entry(image.d, keys::name_hash(b"large"), b"large")),
        Write::Put(keys::garbage(image.large, layout.generation), record::encode(&garbage)),
    ]);
    image.edit_inode(image.d, |i| i.size -= 1);
    assert_eq!(image.kinds(true), Vec::<String>::new());
}

#[test]
fn what_cannot_be_checked_is_refused() {
    let image = Image::make();
    let running = std::fs::File::open(image.dir.path().join("run/lock")).unwrap();
    running.lock().unwrap();
    let args = FsckArgs { data: Some(image.dir.path().into()), ..FsckArgs::default() };
    let e = places(&args).err().unwrap();
    assert!(e.text.contains("in use by process"), "{e}");
    drop(running);
    let none = FsckArgs::default();
    assert_eq!(places(&none).err().unwrap().code, 2);
    let e = check(&Parts { mdts: vec![image.dir.path().join("ost0")], ..Parts::default() }, false)
        .err()
        .unwrap();
    assert!(e.text.contains("ost0"), "{e}");
    let ost = image.dir.path().join("ost0");
    let e =
        check(&Parts { osts: vec![ost.clone(), ost], ..Parts::default() }, false).err().unwrap();
    assert!(e.text.contains("once more"), "{e}");
}

#[test]
fn a_damaged_or_lost_record_of_the_management_target_is_named() {
    let image = Image::make();
    let mgs = image.dir.path().join("mgs");
    let named = || {
        let found = image.check(false).problems;
        found.into_iter().map(|p| (p.target, p.kind, p.fid)).collect::<Vec<_>>()
    };
    assert_eq!(named(), []);
    for file in [crate::label::LABEL_FILE, crate::mgs::STATE_FILE] {
        let path = mgs.join(file);
        let whole = std::fs::read(&path).unwrap();
        let mut torn = whole.clone();
        *torn.last_mut().unwrap() ^= 1;
        std::fs::write(&path, torn).unwrap();
        let damaged = ("MGS".to_string(), "damaged-record".to_string(), file.to_string());
        assert_eq!(named(), [damaged]);
        std::fs::write(&path, whole).unwrap();
    }
    std::fs::remove_file(mgs.join(crate::label::LABEL_FILE)).unwrap();
    assert_eq!(named().len(), 1);
}
