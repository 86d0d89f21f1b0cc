# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What is known beforehand: the operands of the burn-in, and the sums its products must have. Pure.

The functions are those of _gpu/kernels.cu in Python, for small sizes and for saying what a wrong
word should have been. GOLDEN was computed with numpy by .ci/burn_golden.py: a GPU that computes the
expected sums wrongly, or a driver that translates the kernels wrongly, is found before it judges.
"""

from __future__ import annotations

MASK = (1 << 64) - 1
PHI = 0x9E3779B97F4A7C15
WEIGHT_SEED = 0xD1B54A32D192ED03

WORD, ADDRESS, RANDOM = 0, 1, 2

# Data sets of each kind of product: 0 to SETS - 1; P has seed 2 * set, Q has seed 2 * set + 1.
SETS = 4

# (n, amplitude): SHA-256 of the n sums as little-endian 64-bit words, for each data set.
GOLDEN: dict[tuple[int, int], tuple[str, ...]] = {
    (64, 3): (
        "d4b1496292cecca8537a6e6ea91ce3d2d6382c3b3066ebd86f6a26957d50bc07",
        "c9ee0d6d6b0a09bf3f42a1b53429f0ac647db65f2557b105f67d1944ad08ad99",
        "5e253956bc46a0539cab22f5eab8ce0528b8b28668f2cc435c7632d91aa503cf",
        "968d6218ab49f7a5d91754c53077b6e7fe2e304e3a23288c7009e077da4d8644",
    ),
    (64, 45): (
        "5c23e81055f1da8006eeabab50a737bd2fb3b56f48a50e2446039147c1c02d2f",
        "22afca5472f230c7df052146980afe3341c846d795a530f6e76e87f04f90d0ae",
        "282e83bdcee143db9ea3f0046383f56be4df6ba899e87c9fc02dab10f7b6b98f",
        "ac438331da0246d7a1b87ef96b86f9a1bc0bf0e618bc9453a10336dcdc9fc2e8",
    ),
    (64, 524288): (
        "ffad396afcedce4935f415da08a4f939da5592aee04f68753003264daae9ed57",
        "36d80134350b902cb911b608465156439552676a1de6ccc8d1247032ffd74bae",
        "b0d1d1f2f9150a7bc9f929d16da80d7761bbdcaa49b7c6212b029e606c18ab49",
        "e57b4f5e1cb2cd54442c63f625b11b971f7fe2ded2da00df75881d9a5ce8e474",
    ),
    (256, 3): (
        "472a718b423a7bd8383e2ff523e1d62184b0965f80d3e2bbedb9398269c32e9f",
        "517421d739b91fe8f1d1ee655fd2fe7b4707c0730f24739bf7e7a5b8d138a393",
        "ea912a91d473b57d2cccef9a9c99a1463bd01cf507e8f9621d33c7f5cbfde5b1",
        "062b5f432dda5b925c9e691dd16d35ced8b3400986b4c29ac1403d74a5a2dbc4",
    ),
    (256, 45): (
        "82014fb45badbb64924262552f547996487bc61982927d3ce712ace68cdaddbc",
        "aee5577ecc6338f69639427f23c35e225c9fd294ed2125fa7bc4445650841d2d",
        "c81885d443cb86e7da3a11a22eb239e937103fd8b8e1ee79e47ea27f616ee4aa",
        "09f87bca0564011c5297941e8a33723e951acaa2ec075bce294928be196813f1",
    ),
    (256, 524288): (
        "bef44cf8ce70c1ad48e4cbbf053bbe6a42b4a048f3a6994e82e7ef1eb238ea79",
        "81d97bf698e8cd3805fe76c30b9e1fd0f4ac2153fb1d7aeb3f75b7dd9b9d5249",
        "5140fd96bc697c842cead573386a10c5984a872e8a2da99e999a64ee7ef405a2",
        "c190e10cf93eb079bc202abf91276d3d7dcdf6944ec52c4621d48d176df84169",
    ),
    (1024, 3): (
        "1c75a1e43f2bb568ce284531d82539c709e5708881879d4a1ce17a7e0b9148b5",
        "ecf9a27c9bbb74325dd113ddf225ca4212ae7327f648b5d56f822764afd56806",
        "34cb0c3d932e209aa3204e0932154f5170e4d0f4c8eb8cbb5404d585744e08c3",
        "8a92b9a9c1e42570cb557a4ccc605f2b6d7d11add00ac896d0a03b6f6cb8ada3",
    ),
    (1024, 45): (
        "e132fee83c18c54a8a049637ce26bf30ed3d14ab16344143380897e8c8fdee59",
        "c9afcc5e093cf8a0ac95bac9a810a809bddfb80f1356c2e31fcdc59d39078584",
        "4bd600d56eefc19da0f98ebe1ef62d2f67af35ed69368d5994e6f5034dc1d0f6",
        "0bdc0d00bda1fce75ebdfbdb81ed842604b8d865b771ea8450623c9fdf80cf1d",
    ),
    (1024, 524288): (
        "d623062a5237b2dbcad8f735d764ada6e6272e6ca6292092aa0e2eae01d72bcf",
        "90be672d0a0eabca5a8aa62782b654bf56282361830bb157ac1b0e46f748d663",
        "2f652eb1f42b2a81752e32f1418d1e7e9c429f5430546ae7ea3fe33c724d090a",
        "98633f2858c58d29d096b9476e4452af4172999ee38c425755b215c2ce56d32a",
    ),
    (4096, 3): (
        "25104e1e7f3f956b780d340fea28597cf37a7618ede673d15c62e98e0697cd59",
        "8829bf565278e69392bc34fad914039c1987d85011ecd1042236adca03b5f790",
        "e3d3f649e97239ba29d0a5198736a7bd8e369cb444958a0b21016ba0f28b2e39",
        "7df3f08020e554f5c57681684a80ae4fa19d1fb4b5a35cd1ca8963f33d5a2d7c",
    ),
    (4096, 45): (
        "1c4458b3d56a43569c84bb6813ecb27e793e57b5a964f14c221d70c1bc0ccb77",
        "220f223ed124d26e67efbd5e4b38b7df8bf9284103e321cc62267727418a9441",
        "12c143aac89333a5404180682ef75c1aaf19a739c6013b8188321c5157f5f3ec",
        "8d8173b5d452ab69b6ba6015a02c0ce2d8ca84ce68060fff05e9cd7dd77296aa",
    ),
    (4096, 524288): (
        "81b03a4afd29e3d5b8174ae223e016e4d270fe53dd0a2bbcbdc677ea6b1d78cf",
        "ad18933766b895f3c449d37318206f0b79c5bd60ff0f21f6ae53e843a7903053",
        "1b8fcf0a33dd78d5f814de1c3c9363349aa143fec9bc444b79e4d0db96a01f86",
        "8fdc269ba41aa012009bd65f3008087247119ce9e74d301b1a87df95d5d16d6b",
    ),
    (8192, 3): (
        "9398bb12095ada7d20f50d9113c80e54634d767e89d4952cf942eab237954f82",
        "91acd3bb10776de969c34663672be340888ad86e058cd71ad0ae9cc880bb6eab",
        "ec6140e1286a1652e6c1fc1afec1c7d1ad569d632edc712da85e933dccf389ab",
        "e57ee147bf1085a4c7f4935573b901c9a229a6be28bc1e13efaaf3ae03ad2b89",
    ),
    (8192, 45): (
        "1c753b387cb199249b23097b53b8a7f49fd730fcadf90ca974dfc62899a28429",
        "9a0adf132a8467f2e791ee2b34201ed7f8d611bb9e26f66739c12dc564abdd34",
        "45ff718124685c2c8e1a2f50e7ceaf02f94379b807d70717c6e8a7b1bbcd0904",
        "e019094c4566330ab79ce709523c147327e1f02ef7f137974d8e12c9ef573279",
    ),
    (8192, 524288): (
        "40a235a268c7e4340e1d1c8486f8c2e5f60bf1adf9166d766855cac21f79a1a1",
        "35a8f4f1b573e3ca326d933e8d959f0554c21188608ef71f7303b3598f98eb7d",
        "0e1b107f87a94cf19d6d157153fb0cc490816c79b03f34b6252aa1b905e13063",
        "d2fdb8128ffbbf87961b9c87aee61c6e823e74d7d3f5d2b50efe2a63374542eb",
    ),
}


def mix64(x: int) -> int:
    """Return the finalizer of splitmix64."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def pattern_at(mode: int, seed: int, index: int) -> int:
    """Return the 64-bit word of a memory pattern."""
    if mode == WORD:
        return seed
    return index ^ seed if mode == ADDRESS else mix64((index + (seed + 1) * PHI) & MASK)
