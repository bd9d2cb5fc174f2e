//! POSIX ACLs as Linux keeps them in `system.posix_acl_*`: version 2, entries of 8 bytes.
//!
//! Source of the format: Linux's `posix_acl_xattr.h`; of the rules: acl(5) and IEEE 1003.1e draft
//! 17. Who may do what is decided by the kernel of the mount; here the ACL and the mode are kept in
//! step. Never does: I/O.

use crate::Errno;

/// Attribute of the access ACL.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// Attribute of a directory's default ACL.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHER: u16 = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    perm: u16,
    id: u32,
}

/// An ACL with every required entry, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<Entry>);

impl Acl {
    /// Reads an attribute value; EINVAL when it is no ACL. An empty one is `None`.
    pub fn decode(b: &[u8]) -> Result<Option<Acl>, Errno> {
        let (head, rest) = b.split_first_chunk::<4>().ok_or(Errno::EINVAL)?;
        if u32::from_le_bytes(*head) != VERSION {
            return Err(Errno::EOPNOTSUPP);
        }
        if rest.len() % 8 != 0 {
            return Err(Errno::EINVAL);
        }
        if rest.is_empty() {
            return Ok(None);
        }
        let entries: Vec<Entry> = rest
            .chunks_exact(8)
            .map(|e| Entry {
                tag: u16::from_le_bytes([e[0], e[1]]),
                perm: u16::from_le_bytes([e[2], e[3]]),
                id: u32::from_le_bytes([e[4], e[5], e[6], e[7]]),
            })
            .collect();
        let acl = Acl(entries);
        acl.check()?;
        Ok(Some(acl))
    }

    /// Order, required entries, a mask where named entries stand.
    fn check(&self) -> Result<(), Errno> {
        let mut last = (0, 0);
        let mut named = false;
        for e in &self.0 {
            if e.perm > 7 {
                return Err(Errno::EINVAL);
            }
            let with_id = matches!(e.tag, USER | GROUP);
            named |= with_id;
            let key = (e.tag, if with_id { u64::from(e.id) + 1 } else { 0 });
            if !matches!(e.tag, USER_OBJ | USER | GROUP_OBJ | GROUP | MASK | OTHER) || key <= last {
                return Err(Errno::EINVAL);
            }
            last = key;
        }
        let has = |tag| self.0.iter().any(|e| e.tag == tag);
        if !has(USER_OBJ) || !has(GROUP_OBJ) || !has(OTHER) || (named && !has(MASK)) {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    /// The attribute value.
    pub fn encode(&self) -> Vec<u8> {
        let mut b = VERSION.to_le_bytes().to_vec();
        for e in &self.0 {
            b.extend(e.tag.to_le_bytes());
            b.extend(e.perm.to_le_bytes());
            b.extend(e.id.to_le_bytes());
        }
        b
    }

    fn perm(&mut self, tag: u16) -> Option<&mut u16> {
        self.0.iter_mut().find(|e| e.tag == tag).map(|e| &mut e.perm)
    }

    /// The group class of the mode: the mask where there is one.
    fn group_class(&mut self) -> Option<&mut u16> {
        let tag = if self.0.iter().any(|e| e.tag == MASK) { MASK } else { GROUP_OBJ };
        self.perm(tag)
    }

    /// The permission bits this ACL stands for.
    pub fn mode(&self) -> u32 {
        let mut a = self.clone();
        let get = |p: Option<&mut u16>| u32::from(p.map_or(0, |p| *p));
        let group = get(a.group_class());
        get(a.perm(USER_OBJ)) << 6 | group << 3 | get(a.perm(OTHER))
    }

    /// Whether the mode says it all.
    pub fn is_minimal(&self) -> bool {
        self.0.len() == 3
    }

    /// Follows a chmod.
    pub fn chmod(&mut self, mode: u32) {
        let bits = |shift: u32| (mode >> shift & 7) as u16;
        if let Some(p) = self.perm(USER_OBJ) {
            *p = bits(6);
        }
        if let Some(p) = self.group_class() {
            *p = bits(3);
        }
        if let Some(p) = self.perm(OTHER) {
            *p = bits(0);
        }
    }

    /// The ACL of a file made with `mode` where `self` is the default; and the mode it gets.
    pub fn inherit(&self, mode: u32) -> (Acl, u32) {
        let mut a = self.clone();
        a.chmod(self.mode() & mode);
        let mode = (mode & !0o777) | a.mode();
        (a, mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        Acl(entries.iter().map(|&(tag, perm, id)| Entry { tag, perm, id }).collect()).encode()
    }
    const NONE: u32 = u32::MAX;

    #[test]
    fn golden_bytes_of_a_minimal_acl() {
        let b = acl(&[(1, 6, NONE), (4, 4, NONE), (32, 0, NONE)]);
        let expect = [
            2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 4, 0, 4, 0, 255, 255, 255, 255, 32, 0, 0,
            0, 255, 255, 255, 255,
        ];
        assert_eq!(b, expect);
        let a = Acl::decode(&b).unwrap().unwrap();
        assert!(a.is_minimal());
        assert_eq!(a.mode(), 0o640);
    }

    #[test]
    fn mask_is_the_group_class() {
        let b = acl(&[(1, 7, NONE), (2, 7, 5), (4, 5, NONE), (16, 6, NONE), (32, 1, NONE)]);
        let mut a = Acl::decode(&b).unwrap().unwrap();
        assert_eq!(a.mode(), 0o761);
        a.chmod(0o604);
        assert_eq!(a.mode(), 0o604);
        assert_eq!(*a.perm(GROUP_OBJ).unwrap(), 5);
        let (child, mode) = Acl::decode(&b).unwrap().unwrap().inherit(0o100640);
        assert_eq!(mode, 0o100640);
        assert_eq!(child.mode(), 0o640);
    }

    #[test]
    fn malformed_acls_are_refused() {
        for bad in [
            vec![],
            vec![2, 0, 0],
            vec![2, 0, 0, 0, 1],
            acl(&[(1, 7, NONE), (4, 5, NONE)]),
            acl(&[(1, 7, NONE), (2, 7, 5), (4, 5, NONE), (32, 1, NONE)]),
            acl(&[(4, 7, NONE), (1, 5, NONE), (32, 0, NONE)]),
            acl(&[(1, 8, NONE), (4, 5, NONE), (32, 0, NONE)]),
            acl(&[(1, 7, NONE), (1, 7, NONE), (4, 5, NONE), (32, 0, NONE)]),
        ] {
            assert_eq!(Acl::decode(&bad), Err(Errno::EINVAL), "{bad:?}");
        }
        assert_eq!(Acl::decode(&[1, 0, 0, 0]), Err(Errno::EOPNOTSUPP));
        assert_eq!(Acl::decode(&[2, 0, 0, 0]), Ok(None));
    }

    proptest! {
        #[test]
        fn decoder_is_total(b in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(Some(a)) = Acl::decode(&b) {
                prop_assert_eq!(a.encode(), b);
            }
        }
    }
}
