#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""
usage: root-tar.py [TEST...]

What scripts/root-tar makes of file systems, images and what is neither, all
made here.  Prints a line of PASS, FAIL or SKIP for each test.
"""
import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import traceback
import unittest

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                       '../../scripts/root-tar'), encoding='utf-8') as script:
    SCRIPT = compile(script.read(), 'root-tar', 'exec')
CONFIG = {'architecture': 'amd64', 'os': 'linux', 'config': {
    'Env': ['PATH=/x:/y', "QUOTE=it's $HOME\n`x`", 'a.b=1', 'EMPTY='],
    'WorkingDir': "/a b'c"}}
CAPABILITY = b'\1\0\0\2\0\x20\0\xff\0\0'.decode('utf-8', 'surrogateescape')


def member(name, content=b'', linkname='', kind=tarfile.REGTYPE, **fields):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, linkname, len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def folder(name, **fields):
    return member(name, kind=tarfile.DIRTYPE, **{'mode': 0o755, **fields})


def link(name, target):
    return member(name, linkname=target, kind=tarfile.LNKTYPE)


def symlink(name, target):
    return member(name, linkname=target, kind=tarfile.SYMTYPE)


def tar(*members, end=bytes(1024), form=tarfile.PAX_FORMAT):
    return b''.join(
        info.tobuf(form, 'utf-8', 'surrogateescape') + content +
        bytes(-len(content) % 512) for info, content in members) + end


def zstd(data):
    if not shutil.which('zstd'):
        raise unittest.SkipTest('there is no zstd')
    return subprocess.run(['zstd', '-qc'], input=data, check=True,
                          stdout=subprocess.PIPE).stdout


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Layout(dict):
    """The files of an OCI layout"""

    def __init__(self, *layers, config=CONFIG):
        super().__init__({'oci-layout': b'{"imageLayoutVersion":"1.0.0"}'})
        self.index(self.manifest(*layers, config=config))

    def blob(self, data, **more):
        self[f'blobs/sha256/{sha256(data)}'] = data
        return {'digest': f'sha256:{sha256(data)}', 'size': len(data), **more}

    def manifest(self, *layers, config=CONFIG, **more):
        config = self.blob(json.dumps(config).encode())
        return self.blob(json.dumps({
            'schemaVersion': 2, 'config': config,
            'layers': [self.blob(data) for data in layers]}).encode(), **more)

    def index(self, *manifests):
        self['index.json'] = json.dumps({
            'schemaVersion': 2, 'manifests': manifests}).encode()

    def nested(self, *manifests, **more):
        return self.blob(json.dumps({'manifests': manifests}).encode(), **more)


def named(name):
    return {'annotations': {'org.opencontainers.image.ref.name': name}}


def platform(architecture):
    return {'platform': {'os': 'linux', 'architecture': architecture}}


def docker(*layers, diff_ids=None, tags=('x:1',), extra=(), **more):
    """A tar; layers are files, or links to some of those that are before."""
    paths, members = [], []
    for i, layer in enumerate(layers):
        paths.append(f'{i}/layer.tar')
        members += [folder(str(i)), symlink(paths[-1], layer)
                    if isinstance(layer, str) else member(paths[-1], layer)]
    data = [layers[int(layer.split('/')[1])] if isinstance(layer, str) else
            layer for layer in layers]
    config = json.dumps({**CONFIG, 'rootfs': {'diff_ids': diff_ids or [
        f'sha256:{sha256(d)}' for d in data]}}).encode()
    manifest = [{'Config': f'{sha256(config)}.json', 'RepoTags': list(tags),
                 'Layers': paths, **more}]
    return tar(*members, member(f'{sha256(config)}.json', config),
               member('manifest.json', json.dumps(manifest).encode()), *extra)


def execute():
    """The script, in a process that need not start Python anew"""
    try:
        exec(SCRIPT, {'__name__': '__main__'})
        sys.stdout.flush()
        return 0
    except SystemExit as e:
        print(e.code, file=sys.stderr, flush=True)
        return 1
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        return 2


class RootTar(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.top = tempfile.mkdtemp(prefix='root-tar-test-')
        cls.addClassCleanup(shutil.rmtree, cls.top)
        cls.settings = os.path.join(cls.top, 'settings')
        cls.temporary = os.path.join(cls.top, 'tmp')
        os.mkdir(cls.temporary)

    def setUp(self):
        self.infos, self.raw = {}, b''

    def file(self, data):
        path = os.path.join(self.top, 'source')
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif os.path.exists(path):
            os.unlink(path)
        if isinstance(data, Layout):
            for name, content in data.items():
                name = os.path.join(path, name)
                os.makedirs(os.path.dirname(name), exist_ok=True)
                with open(name, 'wb') as f:
                    f.write(content)
        else:
            with open(path, 'wb') as f:
                f.write(data)
        return path

    def run_script(self, source, **environment):
        if os.path.exists(self.settings):
            os.unlink(self.settings)
        outputs = [tempfile.TemporaryFile(), tempfile.TemporaryFile()]
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            for number, output in enumerate(outputs, 1):
                os.dup2(output.fileno(), number)
            os.environ.update(environment)
            tempfile.tempdir = self.temporary
            sys.argv[1:] = source, self.settings
            os._exit(execute())
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        for output in outputs:
            output.seek(0)
        done = subprocess.CompletedProcess(
            source, code, *(output.read() for output in outputs))
        for output in outputs:
            output.close()
        self.assertEqual(os.listdir(self.temporary), [])
        return done

    def good(self, data, name=''):
        """What is in it, by names: an octal mode and what it has or leads to"""
        done = self.run_script(self.file(data) + name)
        self.assertEqual((done.returncode, done.stderr), (0, b''))
        self.raw, found = done.stdout, {}
        self.infos.clear()
        with tarfile.open(fileobj=io.BytesIO(done.stdout), mode='r:',
                          encoding='utf-8') as t:
            for info in t:
                self.infos[info.name] = info
                self.assertNotIn(info.name, found)
                self.assertEqual((info.uname, info.gname), ('', ''))
                parts = info.name.split('/')
                self.assertFalse({'', '..'} & set(parts))
                above = self.infos.get('/'.join(parts[:-1]))
                self.assertTrue(len(parts) == 1 or above.isdir())
                if info.islnk():
                    self.assertFalse(self.infos[info.linkname].islnk())
                    found[info.name] = f'={info.linkname}'
                elif info.issym():
                    found[info.name] = f'>{info.linkname}'
                elif info.isdir():
                    found[info.name] = f'{info.mode:o}'
                else:
                    found[info.name] = t.extractfile(info).read() if \
                        info.isreg() else info.type
        found.pop('.', None)
        return found

    def bad(self, data, text, name='', **environment):
        source = self.file(data)
        done = self.run_script(source + name, **environment)
        message = done.stderr.decode().strip().split('\n')[-1]
        self.assertEqual(done.returncode, 1, message)
        self.assertNotIn(b'Traceback', done.stderr)
        self.assertTrue(message.startswith('boot: '), message)
        self.assertIn(text, message)
        self.assertIn(source, message)
        self.assertEqual(done.stdout, b'')

    def test_plain(self):
        """file systems: all kinds of files, packed in any way"""
        name = 'long' * 40 + '/' + 'é' * 90
        fields = {'uid': 5, 'gid': 1 << 31, 'uname': 'user', 'mtime': 1.5,
                  'mode': 0o4711, 'pax_headers': {
                      'SCHILY.xattr.security.capability': CAPABILITY,
                      'comment': 'x'}}
        members = [
            folder('.', mode=0o1770), member('./f', b'1', **fields),
            member('/usr/bin/x\udcff\n', b'2'), member(name, b'3'),
            member('c', kind=tarfile.CHRTYPE, devmajor=4095, devminor=1048575),
            member('b', kind=tarfile.BLKTYPE),
            member('p', kind=tarfile.FIFOTYPE),
            symlink('.wh.s', '../../x'), link('h', './/f'), folder('usr'),
            symlink('t', 's' * 300), member('f2', b'old'), member('f2', b'new'),
            member('v7/', kind=tarfile.AREGTYPE)]
        data = tar(*members)
        for pack in bytes, gzip.compress, bz2.compress, lzma.compress, zstd:
            found = self.good(pack(data))
            self.assertEqual(found, {
                'f': b'1', 'usr': '755', 'usr/bin': '755', name: b'3',
                'usr/bin/x\udcff\n': b'2', 'long' * 40: '755', 'h': '=f',
                'c': tarfile.CHRTYPE, 'b': tarfile.BLKTYPE, 'f2': b'new',
                'p': tarfile.FIFOTYPE, '.wh.s': '>../../x', 'v7': '644',
                't': f">{'s' * 300}"})
        f, c = self.infos['f'], self.infos['c']
        self.assertEqual((f.mode, f.uid, f.gid, f.mtime, c.devmajor, c.devminor,
                          self.infos['.'].mode),
                         (0o4711, 5, 1 << 31, 1, 4095, 1048575, 0o1770))
        self.assertEqual({k: v for k, v in f.pax_headers.items()
                          if k not in ('gid', 'hdrcharset')},
                         {'SCHILY.xattr.security.capability': CAPABILITY})
        with open(self.settings, encoding='utf-8') as file:
            self.assertEqual(file.read(), "workdir=''\n")
        found = self.good(tar(*members[:3], form=tarfile.GNU_FORMAT))
        self.assertEqual(found['usr/bin/x\udcff\n'], b'2')

    def test_sparse(self):
        """sparse files, in what formats there are"""
        want = bytes(1 << 20) + b'x' * 4096 + bytes(100000)
        path = os.path.join(self.top, 'sparse')
        with open(path, 'wb') as f:
            f.seek(1 << 20)
            f.write(b'x' * 4096)
            f.truncate(len(want))
        name = 'd' * 120 + '/sparse'
        for form in ('gnu', 'pax --sparse-version=0.0',
                     'pax --sparse-version=0.1', 'pax --sparse-version=1.0'):
            data = subprocess.run(
                ['tar', '-P', '-S', '-c', '-f', '-', path, '--transform',
                 f's,.*,{name},', *f'--format={form}'.split()],
                stdout=subprocess.PIPE, check=True).stdout
            self.assertLess(len(data), 1 << 18)
            self.assertEqual(self.good(data)[name], want)

    def test_oci(self):
        """OCI layouts, as directories and tars, with layers of each kind"""
        layout = Layout(tar(member('a', b'1')),
                        gzip.compress(tar(member('b', b'2'), end=b'')),
                        zstd(tar(member('a', b'3'), member('c', b'4'))),
                        tar())
        whole = tar(*(member(f'./{n}', d) for n, d in layout.items()))
        for data in layout, whole, gzip.compress(whole):
            self.assertEqual(self.good(data),
                             {'a': b'3', 'b': b'2', 'c': b'4'})
            said = subprocess.run(
                ['sh', '-euc', '. "$1"; printf "%s|" "$workdir"; ' +
                 '/usr/bin/env -0', 'sh', self.settings],
                stdout=subprocess.PIPE, check=True, env={}).stdout.decode()
            self.assertTrue(said.startswith("/a b'c|"))
            for variable in CONFIG['config']['Env']:
                self.assertEqual(variable in said.split('|')[1].split('\0'),
                                 '.' not in variable)

    def test_several(self):
        """images for other processors, and with names"""
        layout = Layout()

        def image(text, **more):
            return layout.manifest(tar(member(text)), **more)
        layout.index(
            layout.nested(image('0', **platform('arm64')),
                          image('1', **platform('amd64')),
                          image('2', **platform('amd64')), **named('one')),
            image('3', **named('two:x')),
            image('4', **platform('arm64'), **named('three')))
        for name, found in ('', '1'), (':one', '1'), (':two:x', '3'):
            self.assertEqual(self.good(layout, name), {found: b''})
        self.bad(layout, "no image 'four', but 'one', 'two:x', 'three'",
                 ':four')
        self.bad(layout, 'no image for linux/amd64, but for linux/arm64',
                 ':three')
        layout.index(layout.manifest(config={'architecture': 's390x',
                                             'os': 'linux'}))
        self.bad(layout, 'is for linux/s390x')
        layout.index()
        self.bad(layout, 'has no image')

    def test_docker(self):
        """archives of docker save, old and new"""
        first, second = tar(member('a', b'1')), tar(member('.wh.a'),
                                                    member('b', b'2'))
        data = docker(first, second, '../0/layer.tar')
        self.assertEqual(self.good(data), {'b': b'2', 'a': b'1'})
        self.assertEqual(self.good(gzip.compress(data), ':x:1'),
                         {'b': b'2', 'a': b'1'})
        self.bad(data, "no image 'y', but 'x:1'", ':y')
        self.bad(docker(first, diff_ids=['sha256:' + '0' * 64]),
                 "has a '0/layer.tar' that its digest is not of")
        self.bad(docker(first).replace(b'PATH', b'PATS'),
                 ".json' that its digest is not of")
        self.bad(docker(first, diff_ids=[1]), 'its digest is not of')
        self.bad(docker(first, diff_ids=['x', 'y']), 'damaged index')
        self.bad(docker(first, Layers=['../../../../etc/passwd']),
                 "lacks its '../../../../etc/passwd'")
        layout = Layout(first)
        both = docker(second, extra=[member(*f) for f in layout.items()])
        self.assertEqual(self.good(both), {'a': b'1'})
        # What has only the name of one
        found = self.good(tar(member('manifest.json', b'[{}]'), folder('usr')))
        self.assertEqual(list(found), ['manifest.json', 'usr'])

    def layers(self, *layers):
        return self.good(Layout(*(tar(*members) for members in layers)))

    def test_whiteouts(self):
        """whiteouts: of lower layers only, wherever they are"""
        lower = [folder('d'), member('d/a', b'1'), member('d/b', b'1'),
                 folder('d/e'), member('d/e/f', b'1'), member('g', b'1'),
                 symlink('l', 'd')]
        self.assertEqual(self.layers(lower, [member('d/.wh.a'),
                                             member('.wh.g'), member('.wh.no'),
                                             member('no/.wh.no')]),
                         {'d': '755', 'd/b': b'1', 'd/e': '755',
                          'd/e/f': b'1', 'l': '>d'})
        rest = {'g': b'1', 'l': '>d'}
        self.assertEqual(self.layers(lower, [member('.wh.d')]), rest)
        self.assertEqual(self.layers(lower, [member('l/.wh.e')]),
                         {'d': '755', 'd/a': b'1', 'd/b': b'1', **rest})
        opaque = [folder('d', mode=0o700), member('d/e/x', b'2'),
                  member('d/b', b'2')]
        for white in 'd/.wh..wh..opq', '.wh.d':
            for at in 0, len(opaque):
                members = list(opaque)
                members.insert(at, member(white))
                self.assertEqual(
                    self.layers(lower, members),
                    {'d': '700', 'd/e': '755', 'd/e/x': b'2', 'd/b': b'2',
                     **rest}, (white, at))
        self.assertEqual(self.layers(lower, [member('.wh..wh..opq'),
                                             member('z')]), {'z': b''})
        # It is no name, and not of this layer.
        for name in '.wh.', '.wh..', '.wh...', '.wh..wh.plnk/1', 'd/.wh...':
            self.assertEqual(len(self.layers(lower, [member(name)])), 7)
        self.assertEqual(self.layers(lower, [member('g', b'2'),
                                             member('.wh.g')])['g'], b'2')

    def test_replaced(self):
        """files for directories, and what upper layers say of directories"""
        lower = [folder('d', mode=0o700), member('d/a', b'1'), member('f'),
                 symlink('l', 'd'), symlink('out', '/../../new/dir'),
                 folder('e'), symlink('e/top', '/e')]
        rest = {'out': '>/../../new/dir', 'e': '755', 'e/top': '>/e'}
        self.assertEqual(
            self.layers(lower, [member('d', b'2'), folder('f'),
                                member('f/x', b'2'), folder('l', mode=0o711)],
                        [folder('d', mode=0o711)]),
            {'d': '711', 'f': '755', 'f/x': b'2', 'l': '711', **rest})
        self.assertEqual(
            self.layers(lower, [folder('d', mode=0o1777), member('d/b'),
                                member('l/c'), member('out/x'),
                                member('e/top/f')]),
            {'d': '1777', 'd/a': b'1', 'd/b': b'', 'd/c': b'', 'f': b'',
             'l': '>d', 'new': '755', 'new/dir': '755', 'new/dir/x': b'',
             'e/f': b'', **rest})

    def test_hard_links(self):
        """hard links, with targets in lower layers, replaced and hidden"""
        lower = [folder('d'), member('d/a', b'1'), link('b', 'd/a'),
                 symlink('s', 'd'), link('s2', 's')]
        rest = {'d': '755', 's': '>d', 's2': '=s'}
        self.assertEqual(self.layers(lower), {'d/a': b'1', 'b': '=d/a', **rest})
        self.assertEqual(self.layers(lower, [member('d/a', b'2')]),
                         {'d/a': b'2', 'b': b'1', **rest})
        self.assertEqual(self.layers(lower, [link('c', 's/a'),
                                             member('d/.wh.a')]),
                         {'b': b'1', 'c': '=b', **rest})
        self.assertEqual(self.layers(lower, [link('d', 'd/a'), link('b', 'b')],
                                     [member('.wh.b')]),
                         {'d': b'1', 's': '>d', 's2': '=s'})

    def test_hostile(self):
        """names and links that lead out, headers that make no sense"""
        outside = os.path.join(self.top, 'outside')
        for name in '../x', 'a/../../x', '/..', 'a/..':
            text = f"has '{name}', which leads out of it"
            self.bad(tar(member(name)), text)
            self.bad(tar(member('y'), link('x', name)), text)
            self.bad(Layout(tar(member(name))), text)
        self.bad(tar(link('x', outside)), 'which is no file in it')
        self.bad(tar(folder('d'), link('x', 'd')), 'which is no file in it')
        self.bad(tar(link('x', '/')), 'which is no file in it')
        self.bad(tar(member('a'), member('a/b')), 'in what is no directory')
        self.bad(tar(symlink('a', 'b'), symlink('b', 'a'), member('a/c')),
                 'in what is no directory')
        self.bad(tar(member('/')), 'a root that is no directory')
        self.bad(tar(member('a', kind=b'Z')), 'of an unknown type')
        found = self.good(tar(symlink('l', self.top), member('l/outside')))
        self.assertIn(outside[1:], found)
        self.assertFalse(os.path.exists(outside))
        first = member('a')
        for pax in ({'size': '-1'}, {'mtime': 'nan'}, {'uid': '-1'},
                    {'gid': str(1 << 32)}, {'path': 'a\0b'},
                    {'path': 'a/' * 5000},
                    {'GNU.sparse.map': '0,2,1,1'}, {'GNU.sparse.map': '0,1,x'},
                    {'GNU.sparse.map': '0,1000', 'GNU.sparse.size': '1000'},
                    {'GNU.sparse.realsize': '4000'},
                    {'GNU.sparse.major': '1', 'GNU.sparse.minor': '0'}):
            self.bad(tar(first, member('b', b'123', pax_headers=pax)),
                     'is truncated or damaged')
        for odd in symlink('l', ''), member('c', kind=tarfile.CHRTYPE,
                                            devmajor=1 << 12):
            self.bad(tar(odd), 'is truncated or damaged')
        large = member('x', kind=tarfile.XHDTYPE)
        large[0].size = 1 << 40
        self.bad(tar(first, large), 'is truncated or damaged')
        large = member('x', pax_headers={'SCHILY.xattr.user.x': 'y' * 2 ** 21})
        self.bad(tar(first, large), 'is truncated or damaged')
        name = member('x', b'y\0', kind=tarfile.GNUTYPE_LONGNAME)
        self.bad(tar(first, *[name] * 3000, first), 'is truncated or damaged')
        # A directory with contents, or headers, that sqfstar might read
        directory = folder('d')
        directory[0].size = 512
        self.assertEqual(self.good(tar(directory, member('x'))),
                         {'d': '755', 'x': b''})
        self.assertEqual(self.infos['d'].size, 0)

    def test_truncated(self):
        """cut off or changed: an error, unless what it changes is no harm"""
        plain = tar(member('a', b'1' * 3000), member('b' * 150), end=bytes(512))
        for pack in bytes, gzip.compress, bz2.compress, lzma.compress, zstd:
            data = pack(plain)
            for cut in (600, 3583, 3600, len(plain) - 512) if pack is bytes \
                    else (len(data) // 2, len(data) - 1):
                self.bad(data[:cut], 'is truncated or damaged')
        for data in docker(plain), docker(gzip.compress(plain)[:-9]), tar(
                *map(lambda f: member(*f), Layout(plain).items())):
            self.bad(data[:-2048], '')
        self.bad(Layout(gzip.compress(plain)[:-9]), 'is truncated or damaged')
        self.bad(plain[:512] + b'x' * 512, 'is truncated or damaged')
        # A layer may end with what its last file has.
        self.assertEqual(self.good(Layout(plain[:3512])), {'a': b'1' * 3000})
        self.bad(Layout(plain[:3511]), 'is truncated or damaged')

    def test_digests(self):
        """what is not as its digest says, or lacks"""
        layout = Layout(tar(member('layer')))
        for name in layout:
            if name.startswith('blobs'):
                data, layout[name] = layout[name], layout[name][:-1] + b' '
                self.bad(layout, f"has a '{name}' that its digest is not of")
                layout[name] = data
        del layout[f"blobs/sha256/{sha256(tar(member('layer')))}"]
        self.bad(layout, "lacks its 'blobs/sha256/")
        for digest in 'sha256:../../../x', 'md5:0', 'sha256:' + 'A' * 64, '/x':
            layout.index({'digest': digest})
            self.bad(layout, f"a digest other than SHA-256, '{digest}'")
        for index in b'', b'[]', b'{"manifests":[1]}', b'{"manifests":{}}', \
                b'{}', b'[' * 100000, b'{"manifests":[{"digest":3}]}', \
                b' ' * (5 << 20):
            layout['index.json'] = index
            self.bad(layout, '')
        for config in [], {'config': [1]}, {'config': {'Env': [1]}}, {
                'config': {'WorkingDir': '\0'}}, {
                'config': {'WorkingDir': '\ud800'}}:
            self.bad(Layout(config=config), 'has a damaged')

    def test_others(self):
        """what is no root, and what is missing"""
        text = 'is no tar, OCI layout or docker archive'
        for data in b'', b'text\n' * 999, bytes(4096), gzip.compress(b'text'):
            self.bad(data, text)
        layout = Layout()
        del layout['oci-layout']
        self.bad(layout, text)
        self.bad(tar(member('a')), "a file system, which has no 'x'", ':x')
        self.bad(Layout(b'text' * 999), 'is no tar')
        self.bad(b'', '', '-not:here')
        self.bad(b'\x28\xb5\x2f\xfd', "needs the program 'zstd'", PATH='')

    def test_sqfstar(self):
        """sqfstar takes it"""
        if not shutil.which('sqfstar'):
            self.skipTest('there is no sqfstar')
        self.good(tar(folder('.'), member('d/f', b'1', uid=3, gid=1 << 31),
                      link('h', 'd/f'), symlink('s', 'h'), link('s2', 's'),
                      member('c', kind=tarfile.CHRTYPE, devmajor=1, devminor=3),
                      folder('e', mode=0o1777), member('n' * 200)))
        image = os.path.join(self.top, 'squashfs')
        self.addCleanup(os.unlink, image)
        subprocess.run(['sqfstar', '-comp', 'lz4', '-no-progress', image],
                       input=self.raw, check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        said = subprocess.run(['unsquashfs', '-llnumeric', image], check=True,
                              stdout=subprocess.PIPE, text=True).stdout
        self.assertEqual(
            [(*line.split()[:2], line.partition('squashfs-root/')[2])
             for line in said.splitlines() if 'squashfs-root/' in line], [
                ('crw-r--r--', '0/0', 'c'), ('drwxr-xr-x', '0/0', 'd'),
                ('-rw-r--r--', '3/2147483648', 'd/f'),
                ('drwxrwxrwt', '0/0', 'e'), ('-rw-r--r--', '3/2147483648', 'h'),
                ('-rw-r--r--', '0/0', 'n' * 200),
                ('lrwxrwxrwx', '0/0', 's -> h'),
                ('lrwxrwxrwx', '0/0', 's2 -> h')])


class Result(unittest.TextTestResult):
    def line(self, result, test, text=None):
        print(f"{result} scripts/root-tar/{test.id().split('.test_')[-1]}: "
              f'{text or test.shortDescription()}', flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.line('PASS', test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.line('SKIP', test, reason)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.line('FAIL', test, str(err[1]).strip().split('\n', maxsplit=1)[0])

    addError = addFailure


if __name__ == '__main__':
    unittest.main(testRunner=unittest.TextTestRunner(resultclass=Result,
                                                     verbosity=0))
