"""Names of classes whose files have only numbers, in the order of those: facts, and nothing else.

Sources: for both, Meta-Dataset's meta_dataset/dataset_conversion/TrafficSign_labels.txt and VggFlower_labels.txt, which
name the gist and the repository they were taken from.
"""


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in " ".join(text.split()).split(";"))


# Of GTSRB's classes 00000 to 00042.
TRAFFIC_SIGNS = _names("""
    Speed limit (20km/h); Speed limit (30km/h); Speed limit (50km/h); Speed limit (60km/h); Speed limit (70km/h); Speed
    limit (80km/h); End of speed limit (80km/h); Speed limit (100km/h); Speed limit (120km/h); No passing; No passing
    for vehicles over 3.5 metric tons; Right-of-way at the next intersection; Priority road; Yield; Stop; No vehicles;
    Vehicles over 3.5 metric tons prohibited; No entry; General caution; Dangerous curve to the left; Dangerous curve to
    the right; Double curve; Bumpy road; Slippery road; Road narrows on the right; Road work; Traffic signals;
    Pedestrians; Children crossing; Bicycles crossing; Beware of ice/snow; Wild animals crossing; End of all speed and
    passing limits; Turn right ahead; Turn left ahead; Ahead only; Go straight or right; Go straight or left; Keep
    right; Keep left; Roundabout mandatory; End of no passing; End of no passing by vehicles over 3.5 metric tons
""")

# Of Oxford Flowers' labels 1 to 102.
FLOWERS = _names("""
    pink primrose; hard-leaved pocket orchid; canterbury bells; sweet pea; english marigold; tiger lily; moon orchid;
    bird of paradise; monkshood; globe thistle; snapdragon; colt's foot; king protea; spear thistle; yellow iris;
    globe-flower; purple coneflower; peruvian lily; balloon flower; giant white arum lily; fire lily; pincushion flower;
    fritillary; red ginger; grape hyacinth; corn poppy; prince of wales feathers; stemless gentian; artichoke; sweet
    william; carnation; garden phlox; love in the mist; mexican aster; alpine sea holly; ruby-lipped cattleya; cape
    flower; great masterwort; siam tulip; lenten rose; barbeton daisy; daffodil; sword lily; poinsettia; bolero deep
    blue; wallflower; marigold; buttercup; oxeye daisy; common dandelion; petunia; wild pansy; primula; sunflower;
    pelargonium; bishop of llandaff; gaura; geranium; orange dahlia; pink-yellow dahlia?; cautleya spicata; japanese
    anemone; black-eyed susan; silverbush; californian poppy; osteospermum; spring crocus; bearded iris; windflower;
    tree poppy; gazania; azalea; water lily; rose; thorn apple; morning glory; passion flower; lotus; toad lily;
    anthurium; frangipani; clematis; hibiscus; columbine; desert-rose; tree mallow; magnolia; cyclamen; watercress;
    canna lily; hippeastrum; bee balm; ball moss; foxglove; bougainvillea; camellia; mallow; mexican petunia; bromelia;
    blanket flower; trumpet creeper; blackberry lily
""")
