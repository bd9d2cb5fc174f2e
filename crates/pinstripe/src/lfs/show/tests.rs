//! Against the bytes and the text of real Lustre 2.17.

use super::*;

/// `getfattr lustre.lov f_c2`.
const FILE: [u8; 80] = [
    0xd0, 0x0b, 0xd1, 0x0b, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 4, 0, 0, 2, 0, 0, 0, 0, 0, 0x20,
    0, 2, 0, 0xff, 0xff, 1, 4, 0, 0xc0, 2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0,
    1, 4, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0,
];
/// `getfattr lustre.lov d_def`.
const DIR: [u8; 32] = [
    0xd0, 0x0b, 0xd1, 0x0b, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    0, 3, 0, 0xff, 0xff,
];

fn file(path: Option<&str>, flags: ShowFlags) -> String {
    let lov = Lov::decode(&FILE).unwrap();
    Show { lov: Some(&lov), dir: false, path }.text(flags)
}

fn dir(path: Option<&str>, flags: ShowFlags) -> String {
    let lov = Lov::decode(&DIR).unwrap();
    Show { lov: Some(&lov), dir: true, path }.text(flags)
}

const FIELDS: &str = "lmm_stripe_count:  2
lmm_stripe_size:   2097152
lmm_pattern:       raid0
lmm_layout_gen:    0
lmm_stripe_offset: 1
";
const OBJECTS: &str = "\tobdidx\t\t objid\t\t objid\t\t group
\t     1\t             2\t          0x2\t   0x2c0000401
\t     2\t             2\t          0x2\t   0x300000401

";

#[test]
fn files_look_as_in_lustre() {
    let none = ShowFlags::default();
    assert_eq!(file(Some("f_c2"), none), format!("f_c2\n{FIELDS}{OBJECTS}"));
    let verbose = "lmm_magic:         0x0BD10BD0
lmm_seq:           0x200000402
lmm_object_id:     0x1
lmm_fid:           [0x200000402:0x1:0x0]
";
    let v = ShowFlags { verbose: true, ..none };
    assert_eq!(file(Some("f_c2"), v), format!("f_c2\n{verbose}{FIELDS}{OBJECTS}"));
    let yaml = "lmm_objects:
      - l_ost_idx: 1
        l_fid:     0x2c0000401:0x2:0x0
      - l_ost_idx: 2
        l_fid:     0x300000401:0x2:0x0
";
    let y = ShowFlags { yaml: true, ..none };
    assert_eq!(file(Some("f_c2"), y), format!("{FIELDS}{yaml}"));
}

#[test]
fn single_values_stand_alone() {
    let none = ShowFlags::default();
    assert_eq!(file(None, ShowFlags { count: true, ..none }), "2\n\n");
    assert_eq!(file(None, ShowFlags { size: true, ..none }), "2097152\n\n");
    assert_eq!(file(None, ShowFlags { index: true, ..none }), "1\n\n");
    let two = ShowFlags { count: true, size: true, ..none };
    assert_eq!(file(None, two), "lmm_stripe_count:  2\nlmm_stripe_size:   2097152\n\n");
    assert_eq!(dir(None, ShowFlags { count: true, ..none }), "3\n\n");
}

#[test]
fn directories_look_as_in_lustre() {
    let none = ShowFlags::default();
    let line = "stripe_count:  3 stripe_size:   1048576 pattern:       raid0 stripe_offset: -1\n\n";
    assert_eq!(dir(Some("d_def"), none), format!("d_def\n{line}"));
    assert_eq!(dir(None, none), line);
    let unset = Show { lov: None, dir: true, path: None }.text(none);
    let expect = "stripe_count:  4 stripe_size:   4194304 pattern:       0 stripe_offset: -1\n\n";
    assert_eq!(unset, expect);
}
