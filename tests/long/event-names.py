#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Compare the engine's events with the manufacturers' lists of them.

Those are perf's, in a source tree of Linux (tools/perf/pmu-events/arch/x86), and
of older processors libpfm4's, in its source (lib/events).
Each of their events is either counted, or never happens here, or is in the
table of docs/system/i386/pmu-events.rst that says why it is not.  If the engine
has a name of the same event for another code, that is an error, too.
"""

import argparse
from collections import defaultdict
from fnmatch import fnmatchcase
import json
from pathlib import Path
import re
import subprocess
import sys

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / 'docs/system/i386/pmu-events.rst'
LISTS = {
    'bonnell': 'Intel 6 1c', 'nehalemep': 'Intel 6 1a', 'nehalemex':
    'Intel 6 2e', 'westmereep-dp': 'Intel 6 2c', 'westmereep-sp':
    'Intel 6 25', 'westmereex': 'Intel 6 2f', 'sandybridge': 'Intel 6 2a',
    'jaketown': 'Intel 6 2d', 'ivybridge': 'Intel 6 3a', 'ivytown':
    'Intel 6 3e', 'haswell': 'Intel 6 3c', 'haswellx': 'Intel 6 3f',
    'broadwell': 'Intel 6 3d', 'broadwellx': 'Intel 6 4f', 'broadwellde':
    'Intel 6 56', 'skylake': 'Intel 6 5e', 'skylakex': 'Intel 6 55',
    'cascadelakex': 'Intel 6 55', 'icelake': 'Intel 6 7e', 'icelakex':
    'Intel 6 6a', 'tigerlake': 'Intel 6 8c', 'rocketlake': 'Intel 6 a7',
    'sapphirerapids': 'Intel 6 8f', 'emeraldrapids': 'Intel 6 cf',
    'graniterapids': 'Intel 6 ad', 'silvermont': 'Intel 6 37',
    'knightslanding': 'Intel 6 85', 'goldmont': 'Intel 6 5c',
    'goldmontplus': 'Intel 6 7a', 'snowridgex': 'Intel 6 86',
    'elkhartlake': 'Intel 6 96', 'sierraforest': 'Intel 6 af',
    'amdzen1': 'AMD 17 1', 'amdzen2': 'AMD 17 31', 'amdzen3': 'AMD 19 1',
    'amdzen4': 'AMD 19 11', 'amdzen5': 'AMD 1a 2',
}
OLDER = {
    'P6': 'intel_p6_events.h intel_pm_events.h',
    'Core Duo': 'intel_coreduo_events.h', 'Core 2': 'intel_core_events.h',
    'K7': 'amd64_events_k7.h amd64_events_k8.h amd64_events_fam10h.h '
          'amd64_events_fam11h.h',
    '15h': 'amd64_events_fam15h.h amd64_events_fam15h_nb.h',
}
# What the guest's program does not do, and what counts with PEBS only
RARE = ('fp_arith_inst_retired.*', 'fp_ret_x87_fp_ops.*', 'mem_trans_retired.*',
        'ex_ret_mmx_fp_instr.mmx*')
MSRS = (0x1a6, 0x1a7, 0x3f6, 0x3f7)


def number(text):
    """Of "0xB7, 0xBB", the first one."""
    return int(str(text or 0).split(',')[0], 0)


def events(directory):
    """The core's events, as (name, select, MSR's value)."""
    for path in sorted(directory.glob('*.json')):
        for event in json.loads(path.read_text()):
            if ('EventName' not in event or 'EventCode' not in event or
                    event.get('Unit', 'core') != 'core' or
                    'MetricExpr' in event):
                continue
            code = number(event['EventCode'])
            msr = number(event.get('MSRIndex'))
            select = (code & 0xff | number(event.get('UMask')) << 8 |
                      bool(number(event.get('EdgeDetect'))) << 18 |
                      bool(number(event.get('Invert'))) << 23 |
                      number(event.get('CounterMask')) << 24 |
                      code >> 8 << 32)
            # Intel's 0 is a fixed counter's.
            if code or directory.name.startswith('amd'):
                yield (event['EventName'], select,
                       number(event.get('MSRValue')) if msr in MSRS else 0,
                       msr == 0x3f6)


def older_events(path):
    """The same of a list of libpfm4's."""
    text = re.sub(r'/\*.*?\*/', '', path.read_text(), flags=re.S)
    masks = {}
    for table in re.finditer(r'umask_t (\w+)\s*\[\]\s*=\s*\{(.*?)\n\};', text,
                             re.S):
        masks[table[1]] = re.findall(
            r'\.uname\s*=\s*"(\w+)".*?\.ucode\s*=\s*(\w+)', table[2], re.S)
    for event in re.finditer(
            r'\.name\s*=\s*"(\w+)"(.*?)(?=\.name\s*=|\Z)', text, re.S):
        code = re.search(r'\.code\s*=\s*(0x\w+)', event[2])
        mask = re.search(r'\.umasks\s*=\s*(\w+)', event[2])
        if not code:
            continue
        names = masks.get(mask[1], []) if mask else [('', '0')]
        for name, bits in names:
            bits = int(bits, 0)
            select = int(code[1], 16) | (bits if bits > 0xff else bits << 8)
            yield (event[1] + ('.' + name if name else ''),
                   select & 0xffff | select >> 8 << 32 if select > 0xffff
                   else select, 0, False)


def lists(trees):
    """Each list, as (name, processor, its events)."""
    for tree in trees:
        perf = tree / 'tools/perf/pmu-events/arch/x86'
        for name in LISTS:
            if (perf / name).is_dir():  # of an older or a newer Linux
                yield (f'{tree.name}: {name}', LISTS[name],
                       list(events(perf / name)))


def compare_older(program, directory):
    """Whether the engine has events that libpfm4 has not."""
    run = subprocess.run([program], capture_output=True, text=True, check=True)
    rows = [line.split('\t') for line in run.stdout.splitlines()]
    bad = False
    for processor, names in OLDER.items():
        masks = defaultdict(int)
        for name in names.split():
            for _, select, _, _ in older_events(directory / name):
                masks[select & 0xff] |= select >> 8 & 0xff
        its = [row for row in rows if row[0] == processor]
        for _, event, umask, _, _, name in its:
            event = int(event, 16)
            bits = 0 if umask == '-' else int(umask.lstrip('='), 16)
            if event not in masks or bits & ~masks[event]:
                print(f'FAIL event-names: libpfm4: {processor}: {name} '
                      f'({event:x}/{bits:x}) is not there')
                bad = True
        print(f'PASS event-names: libpfm4: {processor}: {len(its)} events')
    return bad


def ask(program, processor, selects):
    text = ''.join(f'{select:x} {extra:x}\n' for select, extra in selects)
    run = subprocess.run([program, *processor.split()], input=text,
                         capture_output=True, text=True, check=True)
    answers = [line.split('\t') for line in run.stdout.splitlines()]
    assert len(answers) == len(selects)
    return answers


def reasons():
    """The patterns of names that the page says are not counted."""
    text = PAGE.read_text().split('What is not counted\n')[1]
    rows = re.findall(r'^   \* - (.*(?:\n       .*)*)', text, re.M)
    return [pattern for row in rows[1:]
            for pattern in re.findall(r'``([^`]*)``', row)]


def judge_event(words, answer, patterns):
    """What is wrong with a line of EVENT; None, if nothing is."""
    name, _, _, count = words
    does, unknown, _ = answer
    if count not in ('0', 'none', 'supported>', 'counted>'):
        return None
    if does == 'never' or any(fnmatchcase(name, p.lower()) for p in patterns):
        return None
    return (f'is {count}, and nothing says why' if does != 'counts' else
            None if any(fnmatchcase(name, p) for p in RARE) else
            f'is {count}, but is counted')


def judge_metric(words):
    """The same of a line of METRIC."""
    value, unit = words[1], ' '.join(words[2:])
    if value in ('none', 'divided'):
        return None             # its events are not there, or are 0
    if value == 'negative':
        return 'is below 0'
    if not re.fullmatch(r'[0-9.]+', value):
        return f'is {value}'
    if '%' in unit and float(value) > 100:
        return f'is {value} of 100 {unit}'
    return None


def judge(program, log, processor):
    """What guest/test/pmu-names has printed; whether something is wrong."""
    lines = [line.split() for line in
             log.read_text(errors='replace').splitlines()]
    its = [line[1:] for line in lines if line[:1] == ['EVENT'] and
           len(line) == 5]
    answers = ask(program, processor,
                  [(int(e[1], 0) & 0xfffffffffff, int(e[2], 0)) for e in its])
    patterns, bad = reasons(), False
    checks = [(e[0], judge_event(e, a, patterns)) for e, a in zip(its, answers)]
    checks += [(line[1], judge_metric(line[1:])) for line in lines
               if line[:1] == ['METRIC'] and len(line) > 2]
    for name, wrong in checks:
        if wrong:
            print(f'FAIL perf-models: {processor}: {name} {wrong}')
            bad = True
    metrics = len(checks) - len(its)
    if len(its) < 100 or not metrics:
        print(f'FAIL perf-models: {processor}: {len(its)} events, {metrics} '
              'metrics')
        bad = True
    elif not bad:
        print(f'PASS perf-models: {processor}: {len(its)} events and {metrics} '
              'metrics')
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', 1)[0])
    parser.add_argument('--list', metavar='PROGRAM', help='list-events',
                        default=ROOT / 'build/host/tests/unit/list-events')
    parser.add_argument('--verbose', action='store_true',
                        help='print every event that is not counted')
    parser.add_argument('--guest', type=Path, metavar='LOG',
                        help='what guest/test/pmu-names has printed')
    parser.add_argument('--processor', help='whose: "Intel 6 5e"')
    parser.add_argument('trees', type=Path, nargs='*', metavar='tree',
                        help="Linux' or libpfm4's source")
    args = parser.parse_args()
    if args.guest:
        return judge(args.list, args.guest, args.processor)
    patterns, used, bad = reasons(), set(), False
    for name, processor, its in lists(args.trees):
        counted = defaultdict(int)
        for event, answer in zip(its, ask(args.list, processor,
                                          [e[1:3] for e in its])):
            does, unknown, _ = answer
            # Of load latency, it is PEBS that has it counted.
            does = 'counts' if event[3] and unknown == '0' else does
            if does == 'counts' and unknown != '0':
                does = 'in part'
            counted[does] += 1
            if does in ('counts', 'never'):
                continue
            fits = [p for p in patterns if fnmatchcase(event[0].lower(),
                                                       p.lower())]
            used.update(fits)
            if args.verbose:
                print(f'{name}: {event[0]} {event[1]:x}: {does}')
            if not fits:
                print(f'FAIL event-names: {name}: {event[0]} ({event[1]:x}): '
                      f'{does}, and the page has no reason')
                bad = True
        print(f'PASS event-names: {name}: ' + ', '.join(
            f'{n} {what}' for what, n in sorted(counted.items())))
    for tree in args.trees:
        if (tree / 'lib/events').is_dir():
            bad |= compare_older(args.list, tree / 'lib/events')
    for pattern in patterns:
        if pattern not in used:
            print(f'FAIL event-names: {pattern} is no event that is not counted')
            bad = True
    return bad


if __name__ == '__main__':
    sys.exit(main())
