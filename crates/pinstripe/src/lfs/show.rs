//! How a layout looks: `lfs getstripe` of Lustre 2.17, plain layouts and directory defaults.

use std::fmt::Write;
use std::path::Path;

use proto::Fid;
use proto::layout::{DEFAULT_STRIPE_COUNT, DEFAULT_STRIPE_SIZE};
use proto::lov::Lov;
use serde_json::{Value, json};

/// Which parts are wanted; none of the first four: all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShowFlags {
    /// Only (or also) the stripe count.
    pub count: bool,
    /// Only (or also) the stripe size.
    pub size: bool,
    /// Only (or also) the first OST.
    pub index: bool,
    /// Only the objects.
    pub quiet: bool,
    /// Also magic and FID.
    pub verbose: bool,
    /// YAML.
    pub yaml: bool,
}

impl ShowFlags {
    /// Whether single values are asked for, which also means: not of what a directory holds.
    pub fn single(&self) -> bool {
        self.count || self.size || self.index
    }
}

/// One file or directory to show.
#[derive(Clone, Copy, Debug)]
pub struct Show<'a> {
    /// Its layout; `None`: a directory without a default of its own.
    pub lov: Option<&'a Lov>,
    /// A directory's default rather than a file's layout.
    pub dir: bool,
    /// Name to show before it.
    pub path: Option<&'a str>,
}

impl Show<'_> {
    /// The text.
    pub fn text(&self, flags: ShowFlags) -> String {
        let mut out = String::new();
        if let Some(path) = self.path
            && !flags.quiet
            && !flags.yaml
        {
            let _ = writeln!(out, "{path}");
        }
        let fields = self.fields(flags);
        if !fields.is_empty() {
            let _ = writeln!(out, "{}", fields.join(if self.dir { " " } else { "\n" }));
        }
        if !flags.single() {
            self.objects(flags, &mut out);
        }
        if !flags.yaml {
            out.push('\n');
        }
        out
    }

    /// Everything as JSON: what the text calls by the same names, numbers where Lustre shows numbers.
    /// A file without stripes has none of them.
    pub fn json(&self, path: &Path, fid: Option<Fid>) -> Value {
        let mut value = json!({
            "path": path.to_string_lossy(),
            "kind": if self.dir { "directory" } else { "file" },
            "fid": fid.map(|f| f.to_string()),
        });
        if self.lov.is_none() && !self.dir {
            return value;
        }
        let number = |text: String| text.parse::<i64>().ok();
        value["stripe_count"] = json!(number(self.count()));
        value["stripe_size"] = json!(number(self.size()));
        value["pattern"] = json!(self.pattern());
        value["stripe_offset"] = json!(number(self.offset()));
        if let Some(lov) = self.lov.filter(|_| !self.dir) {
            let object = |o: &proto::lov::LovObject| json!({ "l_ost_idx": o.ost, "l_fid": format!("[{:#x}:{:#x}:0x0]", o.seq, o.oid) });
            value["layout_gen"] = json!(self.generation());
            value["objects"] = lov.objects.iter().map(object).collect();
        }
        value
    }

    fn fields(&self, flags: ShowFlags) -> Vec<String> {
        let all = !flags.single() && !flags.quiet;
        let alone =
            !all && [flags.count, flags.size, flags.index].iter().filter(|f| **f).count() == 1;
        let prefix = if self.dir { "" } else { "lmm_" };
        let field = |name: &str, value: String| {
            if alone { value } else { format!("{:<19}{value}", format!("{prefix}{name}:")) }
        };
        // A directory's fields stand in one line; their names are padded without the prefix.
        let field = |name: &str, value: String| match (alone, self.dir) {
            (false, true) => format!("{:<15}{value}", format!("{name}:")),
            _ => field(name, value),
        };
        let mut fields = Vec::new();
        if all && flags.verbose && !self.dir {
            self.details(&mut fields);
        }
        if all || flags.count {
            fields.push(field("stripe_count", self.count()));
        }
        if all || flags.size {
            fields.push(field("stripe_size", self.size()));
        }
        if all {
            fields.push(field("pattern", self.pattern().into()));
        }
        if all && !self.dir {
            fields.push(field("layout_gen", self.generation().to_string()));
        }
        if all || flags.index {
            fields.push(field("stripe_offset", self.offset()));
        }
        fields
    }

    fn details(&self, fields: &mut Vec<String>) {
        if let Some(lov) = self.lov {
            let (oid, seq) = lov.owner;
            fields.push("lmm_magic:         0x0BD10BD0".to_string());
            fields.push(format!("lmm_seq:           {seq:#x}"));
            fields.push(format!("lmm_object_id:     {oid:#x}"));
            fields.push(format!("lmm_fid:           [{seq:#x}:{oid:#x}:0x0]"));
        }
    }

    fn count(&self) -> String {
        match self.lov.map(|l| l.stripe_count) {
            None | Some(0) => DEFAULT_STRIPE_COUNT.to_string(),
            Some(0xffff) => "-1".into(),
            Some(n) => n.to_string(),
        }
    }

    fn size(&self) -> String {
        match self.lov.map(|l| l.stripe_size) {
            None | Some(0) => DEFAULT_STRIPE_SIZE.to_string(),
            Some(n) => n.to_string(),
        }
    }

    fn pattern(&self) -> &'static str {
        // As Lustre shows it: 0 where nobody chose a layout.
        if self.lov.is_none() { "0" } else { "raid0" }
    }

    /// Where a file has objects, the attribute's last field holds the layout's generation; Lustre
    /// hides it there as -1.
    fn generation(&self) -> u16 {
        match self.lov {
            Some(l) if !l.objects.is_empty() && l.stripe_offset != 0xffff => l.stripe_offset,
            _ => 0,
        }
    }

    fn offset(&self) -> String {
        match self.lov {
            None => "-1".into(),
            Some(l) => match (l.objects.first(), l.stripe_offset) {
                (Some(o), _) => o.ost.to_string(),
                (None, 0xffff) => "-1".into(),
                (None, n) if self.dir => n.to_string(),
                (None, _) => "-1".into(),
            },
        }
    }

    fn objects(&self, flags: ShowFlags, out: &mut String) {
        let Some(lov) = self.lov.filter(|l| !self.dir && !l.objects.is_empty()) else {
            return;
        };
        if flags.yaml {
            out.push_str("lmm_objects:\n");
            for o in &lov.objects {
                let _ = writeln!(out, "      - l_ost_idx: {}", o.ost);
                let _ = writeln!(out, "        l_fid:     {:#x}:{:#x}:0x0", o.seq, o.oid);
            }
            return;
        }
        out.push_str("\tobdidx\t\t objid\t\t objid\t\t group\n");
        for o in &lov.objects {
            let _ =
                writeln!(out, "\t{:>6}\t{:>14}\t{:>#13x}\t{:>#14x}", o.ost, o.oid, o.oid, o.seq);
        }
    }
}

#[cfg(test)]
mod tests;
